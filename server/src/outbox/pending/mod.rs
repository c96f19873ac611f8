//! What is not out, and why not: for an operator who asks, and to make what waits for a time due at once.
//!
//! Guarantees: a page costs a page, however many rows wait: it looks at [`SCAN`] of them at most, and says how far it came;
//! each row has one reason, by the precedence of invariant 2, then by what the pass itself goes by. Only rows that wait for a
//! time are made due, the drain's lock taken before theirs; order and attempts stay. Does not: wake the drainer, or ask who
//! may do this. Design, sections 4 and 15.

mod sql;

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::drain::Options;
use super::operator::{Answer, MOST, Refused, Skipped, WhyNot};
use super::sql::{Blocks, lock_patiently};
use crate::db::{self, Begin, Pool, Tx};

pub use sql::QUERIES;

/// Unpublished rows that one page looks at: some thousand pages of the table at worst, tens of milliseconds.
pub const SCAN: i64 = 5_000;
/// Most time for one call.
const LIMIT: Duration = Duration::from_secs(8);

/// Why a row is not out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its transaction is not known to have ended.
    Unresolved,
    /// Its operation is not decided.
    Held,
    /// It waits for an operator.
    Parked,
    /// A publisher has it.
    InFlight,
    /// No queue took it; it waits for its type's probe, or is that.
    Unroutable,
    /// It waits for its next attempt.
    BackingOff,
    /// An earlier row of its key is not out.
    Behind,
    /// The drain is paused.
    Paused,
    /// It is claimed alone.
    Alone,
    /// Nothing.
    Ready,
}

impl Why {
    const ALL: [Self; 10] = [
        Self::Unresolved,
        Self::Held,
        Self::Parked,
        Self::InFlight,
        Self::Unroutable,
        Self::BackingOff,
        Self::Behind,
        Self::Paused,
        Self::Alone,
        Self::Ready,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Held => "held",
            Self::Parked => "parked",
            Self::InFlight => "in_flight",
            Self::Unroutable => "unroutable",
            Self::BackingOff => "backing_off",
            Self::Behind => "behind",
            Self::Paused => "paused",
            Self::Alone => "alone",
            Self::Ready => "ready",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

/// Which rows; all that is set must hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this type.
    pub event_type: Option<String>,
    /// Only this ordering key.
    pub ordering_key: Option<String>,
    /// Only for one of these reasons.
    pub why: Option<Vec<Why>>,
}

/// A row that is not out. Times that no calendar has are absent, texts are bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The event's id.
    pub id: Uuid,
    /// Place in the outbox.
    pub seq: i64,
    /// Why it is not out.
    pub why: Why,
    /// With [`Why::Behind`]: the row that holds it back, if it is among the first 100 of its key.
    pub behind: Option<Uuid>,
    /// The event's type.
    pub event_type: String,
    /// The ordering key in force.
    pub ordering_key: Option<String>,
    /// When it was staged.
    pub created_at: Option<OffsetDateTime>,
    /// Failed attempts.
    pub attempts: i32,
    /// What the last one died of.
    pub last_error: String,
    /// Not tried before.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Its ticket; 0: it is resolved.
    pub ticket: i64,
    /// Operation and generation that it is held for.
    pub hold: Option<(String, i64)>,
    /// When it was set aside.
    pub parked_at: Option<OffsetDateTime>,
    /// The evidence.
    pub parked_reason: String,
    /// When it was claimed.
    pub claimed_at: Option<OffsetDateTime>,
    /// By whom.
    pub claimed_by: String,
    /// Whether it is claimed alone.
    pub alone: bool,
}

/// A page, by `seq`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The rows; perhaps none, although there is a next page.
    pub events: Vec<Pending>,
    /// What to pass as `after` for the next page; `None`: this is the last.
    pub next: Option<i64>,
}

/// One service's rows that are not out.
#[derive(Clone)]
pub struct Desk {
    pool: Pool,
    blocks: Blocks,
}

impl Desk {
    /// For a service that is drained with these options.
    pub fn new(pool: Pool, options: &Options) -> Self {
        Self { pool, blocks: options.blocks() }
    }

    /// Lists rows with a greater `seq` than `after`, at most `limit` (1 to [`MOST`]).
    ///
    /// # Errors
    /// The database's.
    pub async fn list(&self, filter: &Filter, after: Option<i64>, limit: usize) -> Result<Page, db::Error> {
        let limit = limit.clamp(1, MOST);
        db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = sql::page(read.conn(), filter, after, limit, SCAN, self.blocks).await;
            read.finish(found).await
        })
        .await
    }

    /// Makes rows that wait for a time due at once.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn retry(&self, ids: &[Uuid]) -> Result<Answer, Refused> {
        let done = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = self.retrying(&mut tx, ids).await;
            tx.finish(work).await
        });
        done.await?.ok_or(Refused::Busy)
    }

    /// `None`: the lock was not to be had.
    async fn retrying(&self, tx: &mut Tx, ids: &[Uuid]) -> Result<Option<Answer>, db::Error> {
        if !lock_patiently(tx.conn()).await? {
            return Ok(None);
        }
        let acted = sql::retry(tx.conn(), ids).await?;
        let left: Vec<Uuid> = ids.iter().copied().filter(|id| !acted.contains(id)).collect();
        let there =
            if left.is_empty() { Vec::new() } else { sql::left(tx.conn(), &left, self.blocks).await? };
        let skipped = left.into_iter().map(|id| match there.iter().find(|row| row.id == id) {
            None => Skipped { id, why: WhyNot::NotFound, behind: None },
            Some(row) => {
                let why = why_not(&row.why);
                Skipped { id, why, behind: row.behind.filter(|_| why == WhyNot::Behind) }
            }
        });
        let skipped = skipped.collect();
        Ok(Some(Answer { acted, skipped }))
    }
}

/// A word of `left.sql`.
fn why_not(word: &str) -> WhyNot {
    match word {
        "published" => WhyNot::Published,
        "unresolved" => WhyNot::Unresolved,
        "held" => WhyNot::Held,
        "parked" => WhyNot::Parked,
        "in_flight" => WhyNot::InFlight,
        "behind" => WhyNot::Behind,
        "ready" => WhyNot::Ready,
        _ => WhyNot::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own_that_the_page_says() {
        let page = QUERIES.iter().find(|(name, _)| *name == "page").map(|(_, sql)| *sql).unwrap_or_default();
        for why in Why::ALL {
            assert_eq!(Why::parse(why.as_str()), Some(why));
            assert!(page.contains(&format!("'{}'", why.as_str())), "{why:?}");
        }
    }
}
