//! The connection to RabbitMQ.

use prometheus::{IntCounter, IntGauge};

use super::declare::Declare;

/// The publishing connection.
#[derive(Clone, Debug)]
pub struct Broker {
    /// 1 while the publishing connection is open.
    pub connected: IntGauge,
    /// 1 while the broker has blocked it (memory or disk alarm).
    pub blocked: IntGauge,
    /// 1 while the broker answers on it.
    pub responsive: IntGauge,
    /// Connections made: the first and each reconnect.
    pub connections: IntCounter,
    /// Attempts to connect that failed.
    pub failures: IntCounter,
}

impl Broker {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connected: d.gauge("broker_connected", "1 while the publishing connection is open.")?,
            blocked: d.gauge(
                "broker_blocked",
                "1 while the broker blocks publishing (memory or disk alarm). It tells so only to who publishes.",
            )?,
            responsive: d.gauge(
                "broker_responsive",
                "1 while the broker answers on the publishing connection within 5 seconds.",
            )?,
            connections: d.counter(
                "broker_connections_total",
                "Publishing connections made: the first, and each reconnect.",
            )?,
            failures: d.counter("broker_connect_failures_total", "Attempts to connect that failed.")?,
        })
    }
}
