//! Who was let in, by which key; what admins did; and how the key files fare.

use prometheus::{IntCounterVec, IntGauge};

use super::declare::Declare;

/// Calls by what became of their token. Both labels are ours: checks are a closed list, keys are the operator's files.
#[derive(Clone, Debug)]
pub struct Auth {
    accepted: IntCounterVec,
    refused: IntCounterVec,
    admin: IntCounterVec,
    /// Keys in force.
    pub keys: IntGauge,
    /// 1 while every key file can be used.
    pub files_good: IntGauge,
    /// When all of them were last found good.
    pub files_good_at: IntGauge,
}

impl Auth {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            accepted: d.counters(
                "auth_accepted_total",
                "Calls with a good token, by the key that signed it (its kid).",
                &["kid"],
            )?,
            refused: d.counters(
                "auth_refused_total",
                "Calls that were UNAUTHENTICATED, by the check that their token failed.",
                &["check"],
            )?,
            admin: d.counters(
                "admin_calls_total",
                "Admin calls, by verb and outcome: done, failed, denied, or unaudited (refused: the audit could not be written).",
                &["verb", "outcome"],
            )?,
            keys: d.gauge("auth_keys", "Keys in force.")?,
            files_good: d.gauge(
                "auth_key_files_good",
                "1 while every key file can be used; else what was good before stays in force, and the log says which file.",
            )?,
            files_good_at: d.gauge(
                "auth_key_files_good_timestamp_seconds",
                "When all key files were last found good.",
            )?,
        })
    }

    /// A call had a good token.
    pub fn accepted(&self, key: &str) {
        self.accepted.with_label_values(&[key]).inc();
    }

    /// A call had none.
    pub fn refused(&self, check: &str) {
        self.refused.with_label_values(&[check]).inc();
    }

    /// These checks have a series from the start: an alert on the rise of one would miss its first.
    pub fn expect(&self, checks: &[&str]) {
        for check in checks {
            self.refused.with_label_values(&[*check]).inc_by(0);
        }
    }

    /// An admin's call ended.
    pub fn admin(&self, verb: &str, outcome: &str) {
        self.admin.with_label_values(&[verb, outcome]).inc();
    }
}
