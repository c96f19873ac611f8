//! Holds.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    rows: IntGaugeVec,
    oldest: IntGaugeVec,
    left_behind: IntCounterVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            rows: d.gauges(
                "outbox_held_rows",
                "Committed rows that wait for their operation's release or drop, exact, when the watch last looked (drain.held_watch).",
                &["service"],
            )?,
            oldest: d.gauges(
                "outbox_held_oldest_age_seconds",
                "Since when the oldest of them has been staged; 0 without one.",
                &["service"],
            )?,
            left_behind: d.counters(
                "hold_rows_left_behind_total",
                "Rows of decided operations that the watch found held all the same, by outcome (released, dropped): a decision was cut short, or rows came past it.",
                &["service", "outcome"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Holds {
        Holds {
            service: service.to_owned(),
            rows: self.rows.with_label_values(&[service]),
            oldest_age: self.oldest.with_label_values(&[service]),
            left_behind: self.left_behind.clone(),
        }
    }
}

/// Holds of one service.
#[derive(Clone, Debug)]
pub struct Holds {
    service: String,
    /// Rows that are held.
    pub rows: IntGauge,
    /// The age of the oldest of them in seconds.
    pub oldest_age: IntGauge,
    left_behind: IntCounterVec,
}

impl Holds {
    /// Counts rows of decided operations that were held all the same. `outcome`: `released` or `dropped`.
    pub fn left_behind(&self, outcome: &str, rows: u64) {
        self.left_behind.with_label_values(&[self.service.as_str(), outcome]).inc_by(rows);
    }
}
