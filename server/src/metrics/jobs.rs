//! Jobs.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    rows: IntCounterVec,
    slices: IntCounterVec,
    open: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            rows: d.counters(
                "jobs_rows_total",
                "Rows of jobs that this replica has dealt with, by the job's kind (replay) and by what became of each: done, failed, expired (beyond the horizon), pruned (gone).",
                &["service", "kind", "outcome"],
            )?,
            slices: d.counters(
                "jobs_slices_total",
                "Slices of jobs that this replica has done: written, or outdated (another replica had taken the job over, and does them again).",
                &["service", "kind", "outcome"],
            )?,
            open: d.gauges(
                "jobs_open",
                "Jobs that are under way (running), or wait for whoever resumes or cancels them (paused), as each replica sees them every five seconds at least.",
                &["service", "state"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Jobs {
        Jobs {
            service: service.to_owned(),
            rows: self.rows.clone(),
            slices: self.slices.clone(),
            open: self.open.clone(),
        }
    }
}

/// The jobs of one service.
#[derive(Clone, Debug)]
pub struct Jobs {
    service: String,
    rows: IntCounterVec,
    slices: IntCounterVec,
    open: IntGaugeVec,
}

impl Jobs {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// So many rows came to that.
    pub fn rows(&self, kind: &str, outcome: &str, rows: i64) {
        if let Some(rows) = u64::try_from(rows).ok().filter(|rows| *rows > 0) {
            self.rows.with_label_values(&[self.service.as_str(), kind, outcome]).inc_by(rows);
        }
    }

    /// A slice came to that.
    pub fn slice(&self, kind: &str, outcome: &str) {
        self.slices.with_label_values(&[self.service.as_str(), kind, outcome]).inc();
    }

    /// What there is to do.
    pub fn open(&self, running: i64, paused: i64) {
        self.open.with_label_values(&[self.service.as_str(), "running"]).set(running);
        self.open.with_label_values(&[self.service.as_str(), "paused"]).set(paused);
    }
}
