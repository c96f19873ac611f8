//! Staging, and the tickets it is bound to.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::declare::Declare;
use super::labels::TypeLabels;

/// From a fraction of a round trip to the longest that a stage may take.
const STAGE_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

pub(super) struct Families {
    staged: IntCounterVec,
    refused: IntCounterVec,
    duration: HistogramVec,
    discarded: IntCounterVec,
    swept: IntCounterVec,
    unresolved: IntGaugeVec,
    oldest: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            staged: d.counters(
                "staged_total",
                "Events of answered stage requests, by type and outcome (staged, duplicate).",
                &["service", "event_type", "outcome"],
            )?,
            refused: d.counters(
                "stage_refused_total",
                "Stage requests that passed validation and were refused, by reason.",
                &["service", "reason"],
            )?,
            duration: d.histograms(
                "stage_duration_seconds",
                "From a valid stage request to its answer, refusals included.",
                &["service"],
                STAGE_SECONDS,
            )?,
            discarded: d.counters(
                "discarded_total",
                "Rows that left the outbox unpublished, by reason (rolled_back, discarded_by_admin).",
                &["service", "reason"],
            )?,
            swept: d.counters("tickets_swept_total", "Rows of decided tickets deleted.", &["service"])?,
            unresolved: d.gauges(
                "unresolved_tickets",
                "Open transactions with staged events, when the resolver last asked.",
                &["service"],
            )?,
            oldest: d.gauges(
                "unresolved_oldest_age_seconds",
                "How long this replica has seen the oldest of them open.",
                &["service"],
            )?,
        })
    }

    pub(super) fn stage(&self, service: &str, types: &TypeLabels) -> Stage {
        Stage {
            service: service.to_owned(),
            types: types.clone(),
            staged: self.staged.clone(),
            refused: self.refused.clone(),
            duration: self.duration.with_label_values(&[service]),
        }
    }

    pub(super) fn tickets(&self, service: &str) -> Tickets {
        Tickets {
            service: service.to_owned(),
            discarded: self.discarded.clone(),
            swept: self.swept.with_label_values(&[service]),
            unresolved: self.unresolved.with_label_values(&[service]),
            oldest_age: self.oldest.with_label_values(&[service]),
        }
    }
}

/// Staging of one service.
#[derive(Clone, Debug)]
pub struct Stage {
    service: String,
    types: TypeLabels,
    staged: IntCounterVec,
    refused: IntCounterVec,
    duration: Histogram,
}

impl Stage {
    /// Counts events of an answered request. `outcome`: `staged` or `duplicate`.
    pub fn staged(&self, event_type: &str, outcome: &str, events: u64) {
        let labels = [self.service.as_str(), self.types.of(event_type), outcome];
        self.staged.with_label_values(&labels).inc_by(events);
    }

    /// Counts a refused request. `reason`: one of ours.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[self.service.as_str(), reason]).inc();
    }

    /// A request was answered after this time.
    pub fn answered(&self, after: Duration) {
        self.duration.observe(after.as_secs_f64());
    }
}

/// Tickets of one service, and what becomes of rows when they are decided.
#[derive(Clone, Debug)]
pub struct Tickets {
    service: String,
    discarded: IntCounterVec,
    /// Ticket rows deleted.
    pub swept: IntCounter,
    /// Tickets that undecided rows name and that were open when last asked.
    pub unresolved: IntGauge,
    /// For how many seconds the oldest of them has been seen open by this replica.
    pub oldest_age: IntGauge,
}

impl Tickets {
    /// Counts rows that left unpublished. `reason`: as in `holdfast.outbox_tally`.
    pub fn discarded(&self, reason: &str, rows: u64) {
        self.discarded.with_label_values(&[self.service.as_str(), reason]).inc_by(rows);
    }

    /// What a walk over all undecided tickets has found.
    pub fn open(&self, tickets: usize, oldest: Duration) {
        self.unresolved.set(i64::try_from(tickets).unwrap_or(i64::MAX));
        self.oldest_age.set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }
}
