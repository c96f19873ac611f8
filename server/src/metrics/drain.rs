//! Draining: claims, publishes, their outcomes.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::declare::Declare;
use super::labels::TypeLabels;

/// Milliseconds where all is well, and up to the grace after which somebody is called.
const LAG_SECONDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

pub(super) struct Families {
    published: IntCounterVec,
    lag: HistogramVec,
    failures: IntCounterVec,
    unroutable: IntCounterVec,
    given_back: IntCounterVec,
    parked: IntCounterVec,
    stale_stamps: IntCounterVec,
    lease_heals: IntCounterVec,
    missed_promotions: IntCounterVec,
    in_flight: IntGaugeVec,
    paused: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        let (service, by_type) = (&["service"], &["service", "event_type"]);
        Ok(Self {
            published: d.counters(
                "published_total",
                "Events stamped as published: confirmed and routed, or unroutable where the service accepts that.",
                by_type,
            )?,
            lag: d.histograms(
                "publish_lag_seconds",
                "From a row's commit being seen to its stamp as published, by the database's clock.",
                service,
                LAG_SECONDS,
            )?,
            failures: d.counters(
                "publish_failures_total",
                "Publishes that did not end in a confirm, by outcome (returned, nacked, timed_out, refused, unsendable).",
                &["service", "event_type", "outcome"],
            )?,
            unroutable: d.counters(
                "unroutable_total",
                "Publishes that the broker returned because no queue took them.",
                by_type,
            )?,
            given_back: d.counters(
                "given_back_total",
                "Claims given back without an outcome: the broker was away, the lease ran out, or the server stopped.",
                service,
            )?,
            parked: d.counters(
                "parked_total",
                "Events set aside for an operator, by reason (unsendable, unclaimable, crashes).",
                &["service", "reason"],
            )?,
            stale_stamps: d.counters(
                "stale_stamps_total",
                "Outcomes that met a newer claim and changed nothing.",
                service,
            )?,
            lease_heals: d.counters("lease_heals_total", "Rows freed from an expired claim.", service)?,
            missed_promotions: d.counters(
                "missed_promotions_total",
                "Followers found waiting for nobody; zero unless there is a bug.",
                service,
            )?,
            in_flight: d.gauges(
                "in_flight",
                "Rows claimed by this replica and not settled yet.",
                service,
            )?,
            paused: d.gauges(
                "outbox_drain_paused",
                "1 while the drain is paused by an admin (PauseDrain), as this replica saw it last, about once a second; else 0.",
                service,
            )?,
        })
    }

    pub(super) fn service(&self, service: &str, types: &TypeLabels) -> Drain {
        let label = &[service];
        Drain {
            service: service.to_owned(),
            types: types.clone(),
            published: self.published.clone(),
            failures: self.failures.clone(),
            unroutable: self.unroutable.clone(),
            parked: self.parked.clone(),
            lag: self.lag.with_label_values(label),
            given_back: self.given_back.with_label_values(label),
            stale_stamps: self.stale_stamps.with_label_values(label),
            lease_heals: self.lease_heals.with_label_values(label),
            missed_promotions: self.missed_promotions.with_label_values(label),
            in_flight: self.in_flight.with_label_values(label),
            paused: self.paused.with_label_values(label),
        }
    }
}

/// Draining of one service.
#[derive(Clone, Debug)]
pub struct Drain {
    service: String,
    types: TypeLabels,
    published: IntCounterVec,
    failures: IntCounterVec,
    unroutable: IntCounterVec,
    parked: IntCounterVec,
    lag: Histogram,
    /// Claimed rows given back unsent or without an outcome: the broker was away, the lease ran out, or we stopped.
    pub given_back: IntCounter,
    /// Stamps, failures and give-backs that met another claim's generation and changed nothing.
    pub stale_stamps: IntCounter,
    /// Claims whose lease had run out and whose rows were freed.
    pub lease_heals: IntCounter,
    /// Followers the sweep found waiting for nobody. Zero unless there is a bug.
    pub missed_promotions: IntCounter,
    /// Rows claimed by this replica and not settled yet.
    pub in_flight: IntGauge,
    /// Whether the drain is paused, as last seen.
    pub paused: IntGauge,
}

impl Drain {
    /// Counts an event stamped as published, so many seconds after its commit was seen (`None` where nobody can tell).
    pub fn published(&self, event_type: &str, lag_seconds: Option<f64>) {
        self.published.with_label_values(&[self.service.as_str(), self.types.of(event_type)]).inc();
        if let Some(seconds) = lag_seconds {
            self.lag.observe(seconds.max(0.0));
        }
    }

    /// Counts a publish without confirm. `outcome`: `nacked`, `returned`, `timed_out`, `refused`, `unsendable`.
    pub fn publish_failure(&self, event_type: &str, outcome: &str) {
        let labels = [self.service.as_str(), self.types.of(event_type), outcome];
        self.failures.with_label_values(&labels).inc();
    }

    /// Counts a publish that came back.
    pub fn unroutable(&self, event_type: &str) {
        self.unroutable.with_label_values(&[self.service.as_str(), self.types.of(event_type)]).inc();
    }

    /// Counts a row set aside for an operator. `reason`: `unsendable`, `unclaimable`, `crashes`.
    pub fn parked(&self, reason: &str) {
        self.parked.with_label_values(&[self.service.as_str(), reason]).inc();
    }
}
