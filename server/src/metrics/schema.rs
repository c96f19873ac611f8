//! Schemas.

use std::time::SystemTime;

use prometheus::{IntGauge, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    drift: IntGaugeVec,
    looked: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            drift: d.gauges(
                "schema_drift",
                "Differences between a database's schema and the one this release expects, by class: with a breaking one the service is not served, with additive ones it is.",
                &["service", "class"],
            )?,
            looked: d.gauges(
                "schema_looked_timestamp_seconds",
                "When the schema was last looked at (drain.schema_check); 0 before the first time.",
                &["service"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Schema {
        Schema {
            breaking: self.drift.with_label_values(&[service, "breaking"]),
            additive: self.drift.with_label_values(&[service, "additive"]),
            looked: self.looked.with_label_values(&[service]),
        }
    }
}

/// The schema of one service's database.
#[derive(Clone, Debug)]
pub struct Schema {
    breaking: IntGauge,
    additive: IntGauge,
    looked: IntGauge,
}

impl Schema {
    /// What a look found.
    pub fn looked(&self, breaking: usize, additive: usize) {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.breaking.set(gauge(breaking));
        self.additive.set(gauge(additive));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.looked.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }
}
