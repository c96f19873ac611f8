//! Calls as the front sees them.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::declare::Declare;

const CALL_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Calls by method. Who calls bounds the method's values: a served method's full name, or `other`.
#[derive(Clone, Debug)]
pub struct Grpc {
    calls: IntCounterVec,
    duration: HistogramVec,
    in_flight: IntGaugeVec,
}

impl Grpc {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            calls: d.counters(
                "grpc_calls_total",
                "Calls that ended, by method and status code. CANCELLED without an answer: the caller was gone first.",
                &["method", "code"],
            )?,
            duration: d.histograms(
                "grpc_call_duration_seconds",
                "From a call's headers to its status, by method; of streams, to their end.",
                &["method"],
                CALL_SECONDS,
            )?,
            in_flight: d.gauges("grpc_calls_in_flight", "Calls without a status yet.", &["method"])?,
        })
    }

    /// A call began.
    pub fn began(&self, method: &str) {
        self.in_flight.with_label_values(&[method]).inc();
    }

    /// It ended.
    pub fn ended(&self, method: &str, code: &str, after: Duration) {
        self.in_flight.with_label_values(&[method]).dec();
        self.calls.with_label_values(&[method, code]).inc();
        self.duration.with_label_values(&[method]).observe(after.as_secs_f64());
    }
}
