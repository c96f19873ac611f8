//! The inbox.

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    begins: IntCounterVec,
    ends: IntCounterVec,
    duration: HistogramVec,
    letters: IntCounterVec,
    rows: IntGaugeVec,
}

/// From a hint of a handler to one that calls others for minutes.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            begins: d.counters(
                "inbox_begins_total",
                "Deliveries that BeginConsume was asked about, by queue and by what it answered: process, duplicate, in_progress, dead_letter, refused.",
                &["service", "queue", "outcome"],
            )?,
            ends: d.counters(
                "inbox_ends_total",
                "Starts that this replica found to have ended: processed, failed, given_back, rolled_back (without a word), lapsed (the lease ran out). FailConsume may make a failed one of one that was counted as rolled_back or lapsed before.",
                &["service", "outcome"],
            )?,
            duration: d.histograms(
                "inbox_process_duration_seconds",
                "From the start of what was processed to its mark, by the database's clock.",
                &["service"],
                &BUCKETS,
            )?,
            letters: d.counters(
                "inbox_dead_letters_total",
                "Calls of SurfaceDeadLetter by queue and by what came of them: surfaced, surfaced_before, unroutable, unconfirmed, topology, refused.",
                &["service", "queue", "outcome"],
            )?,
            rows: d.gauges(
                "inbox_rows",
                "Messages that are begun, and that wait to be dead-lettered (to_dead_letter), measured every 15 seconds; counted up to 10000, and each replica sees the same ones.",
                &["service", "state"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Inbox {
        Inbox {
            service: service.to_owned(),
            begins: self.begins.clone(),
            ends: self.ends.clone(),
            duration: self.duration.with_label_values(&[service]),
            letters: self.letters.clone(),
            rows: self.rows.clone(),
        }
    }
}

/// The inbox of one service.
#[derive(Clone, Debug)]
pub struct Inbox {
    service: String,
    begins: IntCounterVec,
    ends: IntCounterVec,
    duration: Histogram,
    letters: IntCounterVec,
    rows: IntGaugeVec,
}

impl Inbox {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// A delivery was answered. `queue`: a configured one, else nobody's.
    pub fn begun(&self, queue: &str, outcome: &str) {
        self.begins.with_label_values(&[self.service.as_str(), queue, outcome]).inc();
    }

    /// A start has ended. `took`: how long the processed one took, in seconds.
    pub fn ended(&self, outcome: &str, took: Option<f64>) {
        self.lost(outcome, 1);
        if let Some(took) = took {
            self.duration.observe(took);
        }
    }

    /// So many starts have ended.
    pub fn lost(&self, outcome: &str, starts: u64) {
        self.ends.with_label_values(&[self.service.as_str(), outcome]).inc_by(starts);
    }

    /// SurfaceDeadLetter was answered. `queue`: a configured one.
    pub fn letter(&self, queue: &str, outcome: &str) {
        self.letters.with_label_values(&[self.service.as_str(), queue, outcome]).inc();
    }

    /// What is under way.
    pub fn under_way(&self, begun: i64, to_dead_letter: i64) {
        let service = self.service.as_str();
        self.rows.with_label_values(&[service, "begun"]).set(begun);
        self.rows.with_label_values(&[service, "to_dead_letter"]).set(to_dead_letter);
    }
}
