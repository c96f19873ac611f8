//! What admins did, allowed or denied: who, which verb, with which arguments (never a payload), and what came of it.
//!
//! ```text
//!  denied call ──▶ row (allowed = false, the missing scope)
//!  allowed call ─▶ row ──▶ the act ──▶ outcome row: done(counts) | failed(reason)
//!                            └ server dies ─▶ no outcome: unknown
//! ```
//!
//! Guarantees: an allowed call is on disk before it acts, and where it cannot be written it does not act; so the control
//! database being away stops admin verbs, and nothing else. Both tables only grow: UPDATE, DELETE and TRUNCATE are refused to
//! the server's role by grant and by trigger. An outcome that cannot be written any more does not undo the act; it is said at
//! WARN and the call reads as unknown. Does not: decide who may do what. Design, sections 8, 12, 13 and 15.7.

mod sql;

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use tracing::warn;

use crate::auth::MissingScope;
use crate::db::{self, Begin, Pool};

pub use sql::QUERIES;

/// Most time for one write or one page.
const LIMIT: Duration = Duration::from_secs(5);
/// Longer arguments are left out, and that is said: a page of the list must stay below the limit of a message.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// Most calls of one page.
pub const MOST: usize = 500;
/// A page ends early once it holds this much, below the 4 MiB that clients take by default.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

/// An admin's call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The request's id, as in the log.
    pub request_id: String,
    /// Who calls: the token's `sub`.
    pub sub: String,
    /// Whose service it is about; `None`: the fleet's.
    pub service: Option<String>,
    /// The RPC's name, `DiscardEvents` say.
    pub verb: &'static str,
    /// What was asked for, without payloads.
    pub arguments: Value,
}

/// The audit in the control database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Audit {
    pool: Pool,
}

/// A call that is written down and may act now. Say what came of it.
#[derive(Debug)]
#[must_use = "a call without an outcome reads as unknown"]
pub struct Entry {
    pool: Pool,
    id: i64,
    call: Call,
}

/// How a call in the list ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It was denied: this scope was missing.
    Denied(String),
    /// Nobody has said yet, or ever will: it is under way, or the server died, or the control database was away by then.
    Unknown,
    /// It was done.
    Done {
        /// When.
        at: Option<OffsetDateTime>,
        /// What was counted: a JSON object.
        counts: String,
    },
    /// It failed.
    Failed {
        /// When.
        at: Option<OffsetDateTime>,
        /// A reason of `error_reason.proto`.
        reason: String,
    },
}

/// A call in the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its place: a greater one is later.
    pub id: i64,
    /// When it came, by the control database's clock.
    pub at: OffsetDateTime,
    /// The request's id.
    pub request_id: String,
    /// Who called.
    pub sub: String,
    /// Whose service it was about.
    pub service: Option<String>,
    /// The RPC's name.
    pub verb: String,
    /// What was asked for: a JSON object.
    pub arguments: String,
    /// What came of it.
    pub ended: Ended,
}

/// Which calls to list; each `None` asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// About this service.
    pub service: Option<String>,
    /// Of this caller.
    pub sub: Option<String>,
    /// This RPC.
    pub verb: Option<String>,
    /// Not before.
    pub from: Option<OffsetDateTime>,
    /// Before.
    pub to: Option<OffsetDateTime>,
}

/// A page of calls, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The calls.
    pub calls: Vec<Recorded>,
    /// What to pass as `before` for the next page; `None`: this is the last.
    pub next: Option<i64>,
}

impl Audit {
    /// In this control database.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool }
    }

    /// Writes a call down that is allowed and is about to act.
    ///
    /// # Errors
    /// It could not be written, so it must not act. (Where the answer was lost it may be there, and reads as unknown.)
    pub async fn begin(&self, call: Call) -> Result<Entry, db::Error> {
        let id = self.write(&call, None).await?;
        Ok(Entry { pool: self.pool.clone(), id, call })
    }

    /// Writes a call down that was denied. If that cannot be done it is said, and it stays denied.
    pub async fn denied(&self, call: &Call, missing: &MissingScope) {
        if let Err(error) = self.write(call, Some(&missing.scope)).await {
            warn!(
                %error,
                request.id = call.request_id,
                sub = call.sub,
                service.name = call.service,
                verb = call.verb,
                scope = missing.scope,
                "a denied admin call could not be written into the audit"
            );
        }
    }

    async fn write(&self, call: &Call, missing: Option<&str>) -> Result<i64, db::Error> {
        let arguments = arguments(&call.arguments);
        db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let id = sql::call(tx.conn(), call, missing, &arguments).await;
            tx.finish(id).await
        })
        .await
    }

    /// Lists calls with a smaller id than `before`, the newest first, at most `limit` (1 to [`MOST`]).
    ///
    /// # Errors
    /// The control database's.
    pub async fn list(&self, filter: &Filter, before: Option<i64>, limit: usize) -> Result<Page, db::Error> {
        let limit = limit.clamp(1, MOST);
        let mut calls = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = sql::list(read.conn(), filter, before, limit + 1).await;
            read.finish(found).await
        })
        .await?;
        let room = fitting(calls.iter().map(Recorded::bytes), limit);
        let more = calls.len() > room;
        calls.truncate(room);
        let next = calls.last().map(|last| last.id).filter(|_| more);
        Ok(Page { calls, next })
    }
}

impl Entry {
    /// The act was done. `counts`: a JSON object of what was matched, acted on, skipped.
    pub async fn done(self, counts: &Value) {
        self.ended("done", Some(&counts.to_string()), None).await;
    }

    /// The act failed. `reason`: one of `error_reason.proto`.
    pub async fn failed(self, reason: &str) {
        self.ended("failed", None, Some(reason)).await;
    }

    async fn ended(self, outcome: &str, counts: Option<&str>, reason: Option<&str>) {
        let written = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let written = sql::outcome(tx.conn(), self.id, outcome, counts, reason).await;
            tx.finish(written).await
        });
        if let Err(error) = written.await {
            // The act stands. This line is what is left of its outcome.
            warn!(
                %error,
                audit.id = self.id,
                request.id = self.call.request_id,
                sub = self.call.sub,
                service.name = self.call.service,
                verb = self.call.verb,
                outcome,
                counts,
                reason,
                "the outcome of an admin call could not be written into the audit"
            );
        }
    }
}

impl Recorded {
    fn bytes(&self) -> usize {
        let ended = match &self.ended {
            Ended::Done { counts, .. } => counts.len(),
            Ended::Denied(text) | Ended::Failed { reason: text, .. } => text.len(),
            Ended::Unknown => 0,
        };
        // And a hundred for ids, times and framing.
        self.arguments.len() + self.sub.len() + self.request_id.len() + ended + 100
    }
}

/// How many of these sizes make a page: at least one, at most `limit`.
fn fitting(sizes: impl Iterator<Item = usize>, limit: usize) -> usize {
    let mut sum = 0_usize;
    let fit = sizes.take(limit).take_while(|size| {
        sum = sum.saturating_add(*size);
        sum <= PAGE_BYTES
    });
    fit.count().max(1)
}

/// As they are written: jsonb knows no U+0000.
fn arguments(given: &Value) -> String {
    let text = without_nul(given).to_string();
    if text.len() <= MAX_ARGUMENTS_BYTES {
        return text;
    }
    json!({"omitted": "longer than the audit keeps", "bytes": text.len()}).to_string()
}

fn without_nul(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "\u{fffd}")),
        Value::Array(list) => list.iter().map(without_nul).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.replace('\0', "\u{fffd}"), without_nul(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_too_long_are_left_out_and_that_is_said() {
        let long = arguments(&json!({"ids": vec!["x".repeat(100); 1_000]}));
        assert!(long.contains("omitted") && long.len() < 200, "{long}");
        let ids = json!({"ids": vec!["0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11"; 1_000]});
        assert_eq!(arguments(&ids), ids.to_string(), "the largest verb keeps its ids");
    }

    #[test]
    fn what_jsonb_does_not_know_is_replaced() {
        assert_eq!(
            arguments(&json!({"a\0": ["b\0", {"c": "\0"}]})),
            "{\"a\u{fffd}\":[\"b\u{fffd}\",{\"c\":\"\u{fffd}\"}]}"
        );
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_and_is_never_empty() {
        assert_eq!(fitting([10, 10, 10].into_iter(), 2), 2);
        assert_eq!(fitting([PAGE_BYTES, 1].into_iter(), 100), 1);
        assert_eq!(fitting([PAGE_BYTES + 1, 1].into_iter(), 100), 1);
        assert_eq!(fitting([PAGE_BYTES / 2; 4].into_iter(), 100), 2);
    }
}
