//! Metrics, declared once; the help text is the documentation. The registry is passed in, so that two servers can run in
//! one process. Labels are bounded: services are configured, the rest are our own words. Design, section 14.

use prometheus::core::Collector;
use prometheus::{Encoder, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

/// All metrics of one server.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    staged: IntCounterVec,
    refused: IntCounterVec,
    discarded: IntCounterVec,
    parked: IntCounterVec,
    published: IntCounterVec,
    publish_failures: IntCounterVec,
    unroutable: IntCounterVec,
    given_back: IntCounterVec,
    stale_stamps: IntCounterVec,
    lease_heals: IntCounterVec,
    missed_promotions: IntCounterVec,
    tickets_swept: IntCounterVec,
    unresolved_tickets: IntGaugeVec,
    unresolved_oldest_age: IntGaugeVec,
    in_flight: IntGaugeVec,
    held_rows: IntGaugeVec,
    held_oldest_age: IntGaugeVec,
    hold_rows_left_behind: IntCounterVec,
    /// 1 while the publishing connection to the broker is open.
    pub broker_connected: IntGauge,
    /// 1 while the broker has blocked the publishing connection (memory or disk alarm).
    pub broker_blocked: IntGauge,
}

/// The metrics of one service, its label already applied.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    service: String,
    staged: IntCounterVec,
    refused: IntCounterVec,
    discarded: IntCounterVec,
    parked: IntCounterVec,
    publish_failures: IntCounterVec,
    /// Events stamped as published: confirmed and routed, or unroutable where the service accepts that.
    pub published: IntCounter,
    /// Publishes that came back as unroutable.
    pub unroutable: IntCounter,
    /// Claimed rows given back unsent or without an outcome: the broker was away, the lease ran out, or we stopped.
    pub given_back: IntCounter,
    /// Stamps, failures and give-backs that met another claim's generation and changed nothing.
    pub stale_stamps: IntCounter,
    /// Claims whose lease had run out and whose rows were freed.
    pub lease_heals: IntCounter,
    /// Followers the sweep found waiting for nobody. Zero unless there is a bug.
    pub missed_promotions: IntCounter,
    /// Ticket rows deleted.
    pub tickets_swept: IntCounter,
    /// Tickets that undecided rows name and that were open when last asked.
    pub unresolved_tickets: IntGauge,
    /// For how many seconds the oldest of them has been seen open by this replica.
    pub unresolved_oldest_age: IntGauge,
    /// Rows claimed by this replica and not settled yet.
    pub in_flight: IntGauge,
    /// Rows that wait for their operation's release or drop.
    pub held_rows: IntGauge,
    /// The age of the oldest of them in seconds; 0 if there is none.
    pub held_oldest_age: IntGauge,
    hold_rows_left_behind: IntCounterVec,
}

impl Metrics {
    /// Declares everything in `registry`.
    ///
    /// # Errors
    /// A name is taken already.
    pub fn new(registry: Registry) -> Result<Self, prometheus::Error> {
        let r = &registry;
        Ok(Self {
            staged: counter(r, "staged_total", "Events staged, by outcome.", &["service", "outcome"])?,
            refused: counter(
                r,
                "stage_refused_total",
                "Stage requests refused, by reason.",
                &["service", "reason"],
            )?,
            discarded: counter(
                r,
                "discarded_total",
                "Rows that left unpublished, by reason.",
                &["service", "reason"],
            )?,
            published: counter(r, "published_total", "Events stamped as published.", &["service"])?,
            publish_failures: counter(
                r,
                "publish_failures_total",
                "Publishes that did not end in a confirm, by outcome.",
                &["service", "outcome"],
            )?,
            unroutable: counter(r, "unroutable_total", "Publishes the broker returned.", &["service"])?,
            given_back: counter(
                r,
                "given_back_total",
                "Claims given back without an outcome.",
                &["service"],
            )?,
            stale_stamps: counter(r, "stale_stamps_total", "Outcomes that met a newer claim.", &["service"])?,
            lease_heals: counter(r, "lease_heals_total", "Rows freed from an expired claim.", &["service"])?,
            missed_promotions: counter(
                r,
                "missed_promotions_total",
                "Followers found waiting for nobody; zero unless there is a bug.",
                &["service"],
            )?,
            parked: counter(
                r,
                "parked_total",
                "Events set aside for an operator, by reason.",
                &["service", "reason"],
            )?,
            tickets_swept: counter(r, "tickets_swept_total", "Ticket rows deleted.", &["service"])?,
            unresolved_oldest_age: gauge(
                r,
                "unresolved_oldest_age_seconds",
                "How long the oldest open ticket with undecided rows has been seen open.",
                &["service"],
            )?,
            unresolved_tickets: gauge(
                r,
                "unresolved_tickets",
                "Open tickets with undecided rows.",
                &["service"],
            )?,
            in_flight: gauge(r, "in_flight", "Rows claimed by this replica.", &["service"])?,
            held_rows: gauge(
                r,
                "outbox_held_rows",
                "Rows that wait for their operation's release or drop.",
                &["service"],
            )?,
            held_oldest_age: gauge(
                r,
                "outbox_held_oldest_age_seconds",
                "How long the oldest held row has been staged; 0 if there is none.",
                &["service"],
            )?,
            hold_rows_left_behind: counter(
                r,
                "hold_rows_left_behind_total",
                "Rows of decided operations that the watch found still held, by outcome.",
                &["service", "outcome"],
            )?,
            broker_connected: single(r, "broker_connected", "1 while the publishing connection is open.")?,
            broker_blocked: single(r, "broker_blocked", "1 while the broker blocks publishing.")?,
            registry,
        })
    }

    /// The metrics of one configured service.
    pub fn service(&self, service: &str) -> ServiceMetrics {
        let label = &[service];
        ServiceMetrics {
            service: service.to_owned(),
            staged: self.staged.clone(),
            refused: self.refused.clone(),
            discarded: self.discarded.clone(),
            parked: self.parked.clone(),
            publish_failures: self.publish_failures.clone(),
            published: self.published.with_label_values(label),
            unroutable: self.unroutable.with_label_values(label),
            given_back: self.given_back.with_label_values(label),
            stale_stamps: self.stale_stamps.with_label_values(label),
            lease_heals: self.lease_heals.with_label_values(label),
            missed_promotions: self.missed_promotions.with_label_values(label),
            tickets_swept: self.tickets_swept.with_label_values(label),
            unresolved_tickets: self.unresolved_tickets.with_label_values(label),
            unresolved_oldest_age: self.unresolved_oldest_age.with_label_values(label),
            in_flight: self.in_flight.with_label_values(label),
            held_rows: self.held_rows.with_label_values(label),
            held_oldest_age: self.held_oldest_age.with_label_values(label),
            hold_rows_left_behind: self.hold_rows_left_behind.clone(),
        }
    }

    /// Everything in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut buffer = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut buffer) {
            Ok(()) => String::from_utf8_lossy(&buffer).into_owned(),
            Err(error) => format!("# {error}\n"),
        }
    }
}

impl ServiceMetrics {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Counts staged events. `outcome`: `staged` or `duplicate`.
    pub fn staged(&self, outcome: &str, events: u64) {
        self.staged.with_label_values(&[self.service.as_str(), outcome]).inc_by(events);
    }

    /// Counts a refused stage request. `reason`: one of ours.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[self.service.as_str(), reason]).inc();
    }

    /// Counts rows that left unpublished. `reason`: as in `holdfast.outbox_tally`.
    pub fn discarded(&self, reason: &str, rows: u64) {
        self.discarded.with_label_values(&[self.service.as_str(), reason]).inc_by(rows);
    }

    /// Counts rows of decided operations that the watch found still held. `outcome`: `released` or `dropped`.
    pub fn left_behind(&self, outcome: &str, rows: u64) {
        self.hold_rows_left_behind.with_label_values(&[self.service.as_str(), outcome]).inc_by(rows);
    }

    /// Counts a row set aside for an operator. `reason`: `unsendable`, `unclaimable`, `crashes`.
    pub fn parked(&self, reason: &str) {
        self.parked.with_label_values(&[self.service.as_str(), reason]).inc();
    }

    /// Counts a publish without confirm. `outcome`: `nacked`, `returned`, `timed_out`, `refused`, `unsendable`.
    pub fn publish_failure(&self, outcome: &str) {
        self.publish_failures.with_label_values(&[self.service.as_str(), outcome]).inc();
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("holdfast")
}

fn counter(
    r: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    registered(r, IntCounterVec::new(opts(name, help), labels)?)
}

fn gauge(r: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    registered(r, IntGaugeVec::new(opts(name, help), labels)?)
}

fn single(r: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    registered(r, IntGauge::with_opts(opts(name, help))?)
}
