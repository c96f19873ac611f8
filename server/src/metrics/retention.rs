//! Retention.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    pruned: IntCounterVec,
    last_success: IntGaugeVec,
    capped: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            pruned: d.counters(
                "retention_pruned_total",
                "Rows that this replica deleted because they were past their retention, by table.",
                &["service", "table"],
            )?,
            last_success: d.gauges(
                "retention_last_success_timestamp_seconds",
                "When a retention cycle of any replica last came to its end, by the database's clock; 0: never. Every replica tells it, also after a restart.",
                &["service"],
            )?,
            capped: d.gauges(
                "retention_capped",
                "1 if that cycle stopped at its cap (retention.most) with tables left to prune, else 0. Staying at 1 means that pruning does not keep up.",
                &["service"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Retention {
        Retention {
            service: service.to_owned(),
            pruned: self.pruned.clone(),
            last_success: self.last_success.with_label_values(&[service]),
            capped: self.capped.with_label_values(&[service]),
        }
    }
}

/// Retention of one service.
#[derive(Clone, Debug)]
pub struct Retention {
    service: String,
    pruned: IntCounterVec,
    /// Seconds since the epoch of the last cycle's end.
    pub last_success: IntGauge,
    /// Whether that one stopped at its cap.
    pub capped: IntGauge,
}

impl Retention {
    /// Counts rows that were pruned.
    pub fn pruned(&self, table: &str, rows: u64) {
        self.pruned.with_label_values(&[self.service.as_str(), table]).inc_by(rows);
    }
}
