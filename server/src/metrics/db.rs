//! Pools of database connections.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::declare::Declare;

/// A free connection is had at once; a new one takes a few round trips; the acquire time-out is 5 s.
const WAIT_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

pub(super) struct Families {
    configured: IntGaugeVec,
    open: IntGaugeVec,
    idle: IntGaugeVec,
    in_use: IntGaugeVec,
    waiting: IntGaugeVec,
    wait: HistogramVec,
    failures: IntCounterVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        let label = &["service"];
        Ok(Self {
            configured: d.gauges(
                "pool_connections_configured",
                "Most connections that this replica opens to the service's database, its listener included.",
                label,
            )?,
            open: d.gauges("pool_connections_open", "Open connections of the pool.", label)?,
            idle: d.gauges("pool_connections_idle", "Open connections that nobody uses.", label)?,
            in_use: d.gauges("pool_connections_in_use", "Connections that are lent.", label)?,
            waiting: d.gauges("pool_waiting", "Units of work that wait for a connection now.", label)?,
            wait: d.histograms(
                "pool_acquire_seconds",
                "How long was waited for a connection, connecting included.",
                label,
                WAIT_SECONDS,
            )?,
            failures: d.counters(
                "pool_acquire_failures_total",
                "Times that no connection was had in time.",
                label,
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Pool {
        let label = &[service];
        Pool {
            configured: self.configured.with_label_values(label),
            open: self.open.with_label_values(label),
            idle: self.idle.with_label_values(label),
            in_use: self.in_use.with_label_values(label),
            waiting: self.waiting.with_label_values(label),
            wait: self.wait.with_label_values(label),
            failures: self.failures.with_label_values(label),
        }
    }
}

/// One service's pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Most connections, the listener's included.
    pub configured: IntGauge,
    /// Open ones.
    pub open: IntGauge,
    /// Open ones that nobody uses.
    pub idle: IntGauge,
    /// Lent ones.
    pub in_use: IntGauge,
    waiting: IntGauge,
    wait: Histogram,
    failures: IntCounter,
}

impl Pool {
    /// Somebody waits for a connection, until what is returned is dropped.
    pub fn waits(&self) -> Waiting {
        self.waiting.inc();
        Waiting(self.waiting.clone())
    }

    /// A wait ended after this time.
    pub fn acquired(&self, after: Duration, got_one: bool) {
        self.wait.observe(after.as_secs_f64());
        if !got_one {
            self.failures.inc();
        }
    }
}

/// Somebody waits for a connection.
#[derive(Debug)]
pub struct Waiting(IntGauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}
