//! Holds: events that wait until the operation they belong to is decided, elsewhere and later (design, section 5; ADR-039).
//!
//! The pair of operation and generation is opaque and matched exactly. Guarantees: a decision is final and written once (the
//! *tombstone*); an event is held for ever only if its pair is never decided, whichever of stage and decision came first; rows of
//! one key are released in their order, and nothing is dropped that was not counted. Does not: decide anything by time. The
//! [`watch`] tells of what is held for long, and never reaps.
//!
//! ```text
//!                    StageInTx(hold)           ReleaseHeld: the hold goes, in slices by seq
//!   undecided pair ────────────────▶ held ───────────────────────────────────▶ fresh, or unresolved
//!        │                            │ DropHeld: deleted, in slices, counted as `dropped`
//!        │ ReleaseHeld, DropHeld      └──────────────────────────────────────▶ gone
//!        ▼
//!   released pair ── StageInTx(hold) ──▶ written without its hold
//!   dropped pair ─── StageInTx(hold) ──▶ refused, nothing written
//! ```
//! **The race.** A stage that reads "no tombstone" and commits after a release that saw no row would be held for ever. So a stage
//! has the pair's lock *shared* before the statement that reads the tombstone, and until its commit; a decision has it
//! *exclusive* before it writes ([`lock`]). **Slices.** The tombstone and the first rows are one transaction; more than a slice
//! go on in transactions of their own, by the same call, by whoever calls again, or by the watch.

mod lock;
mod sql;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::drain::Hints;
use crate::db::{self, Begin, Kind, Pool};
use crate::metrics::ServiceMetrics;

pub(super) use lock::begin_sharing;
pub use sql::QUERIES;
pub(super) use sql::{outcome, prune};

/// Most pairs of one page.
pub const MOST: usize = 1_000;
/// Rows that one transaction releases or drops.
const SLICE: i64 = 1_000;
/// How long a stage or a decision waits for the pair's lock, and a decision for rows that somebody else has locked.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// For how long one call goes on with slices; the rest is for the next call, or the watch.
const SLICES: Duration = Duration::from_secs(4);
/// Most time for one transaction.
const LIMIT: Duration = Duration::from_secs(8);
/// Decisions at the same time: each may wait with a connection in hand, and the service's other work needs some, too.
const TURNS: usize = 2;

/// Which operation events are held for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The operation, 1 to 255 bytes.
    pub operation_id: String,
    /// The attempt at it.
    pub generation: i64,
}

impl Pair {
    /// Names the pair's lock. Two pairs with one key only wait for each other. Replicas of different releases must agree on it: it
    /// never changes.
    fn key(&self) -> i32 {
        let mut hasher = Sha256::new();
        hasher.update(self.generation.to_le_bytes());
        hasher.update(self.operation_id.as_bytes());
        let digest = hasher.finalize();
        i32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
    }
}

/// How a pair was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its events are delivered.
    Released,
    /// Its events never are.
    Dropped,
}

impl Outcome {
    /// The word in the tombstone, in metrics and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Released, Self::Dropped].into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// What a decision did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Rows released or dropped by this call; those of transactions that are still open count, too.
    pub rows: u64,
    /// The pair had been decided before, the same way.
    pub before: bool,
    /// No row of the pair is left. Else there were too many for one call, or somebody else has one locked; the watch goes on, and
    /// so does whoever calls again.
    pub complete: bool,
}

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The pair was decided the other way before; nothing was written.
    #[error("the operation's generation is already {}", .0.as_str())]
    Decided(Outcome),
    /// A stage or another decision of the pair was under way for as long as we wait; nothing was written.
    #[error("a stage or another decision of this operation is under way")]
    Busy,
    /// The database failed. The decision may have been taken; calling again tells.
    #[error(transparent)]
    Database(#[from] db::Error),
}

/// A pair with rows that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The pair.
    pub pair: Pair,
    /// Rows whose transactions have committed.
    pub held: i64,
    /// Rows whose transactions are not known to have ended.
    pub unresolved: i64,
    /// When the first of them was staged; absent for a time that no calendar has.
    pub oldest: Option<OffsetDateTime>,
    /// How the pair was decided, if its rows are on their way out.
    pub outcome: Option<Outcome>,
}

/// A page of pairs, by operation and generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The pairs.
    pub pairs: Vec<Held>,
    /// What to pass as `after` for the next page; `None`: this is the last.
    pub next: Option<Pair>,
}

/// One service's holds.
#[derive(Clone)]
pub struct Desk {
    pool: Pool,
    metrics: ServiceMetrics,
    drain: Hints,
    turns: Arc<Semaphore>,
}

/// How the transaction of a decision ended.
enum Decision {
    Taken {
        before: bool,
        slice: Option<sql::Slice>,
    },
    Otherwise(Outcome),
    PairBusy,
    /// Nothing was written: one of the rows is locked.
    RowsBusy,
}

impl Desk {
    /// For a service; `drain` is told of rows that may go.
    pub fn new(pool: Pool, metrics: ServiceMetrics, drain: Hints) -> Self {
        Self { pool, metrics, drain, turns: Arc::new(Semaphore::new(TURNS)) }
    }

    /// Releases the pair: what was staged for it is delivered once its transactions have committed, and what is staged for it from
    /// now on is not held any more.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn release(&self, pair: &Pair) -> Result<Answer, Refused> {
        self.decide(pair, Outcome::Released).await
    }

    /// Drops the pair: what was staged for it is deleted, whether its transactions have committed or not, and nothing can be
    /// staged for it any more.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn drop_held(&self, pair: &Pair) -> Result<Answer, Refused> {
        self.decide(pair, Outcome::Dropped).await
    }

    /// Pairs with rows that wait, behind `after`, at most `limit` (1 to [`MOST`]); of one operation or of all.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(
        &self,
        operation_id: Option<&str>,
        after: Option<&Pair>,
        limit: usize,
    ) -> Result<Page, db::Error> {
        let limit = limit.clamp(1, MOST);
        let mut pairs = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = sql::list(read.conn(), operation_id, after, limit + 1).await;
            read.finish(found).await
        })
        .await?;
        let more = pairs.len() > limit;
        pairs.truncate(limit);
        let next = pairs.last().map(|last| last.pair.clone()).filter(|_| more);
        Ok(Page { pairs, next })
    }

    async fn decide(&self, pair: &Pair, wanted: Outcome) -> Result<Answer, Refused> {
        let Ok(Ok(_turn)) = timeout(PATIENCE, self.turns.acquire()).await else { return Err(Refused::Busy) };
        let mut decision = db::within(LIMIT, self.decide_in_tx(pair, wanted, true)).await?;
        if matches!(decision, Decision::RowsBusy) {
            // The decision does not wait for a stranger who has a row locked; its row does.
            decision = db::within(LIMIT, self.decide_in_tx(pair, wanted, false)).await?;
        }
        let (before, first) = match decision {
            Decision::Taken { before, slice } => (before, slice),
            Decision::Otherwise(outcome) => return Err(Refused::Decided(outcome)),
            Decision::PairBusy | Decision::RowsBusy => return Err(Refused::Busy),
        };
        let (mut rows, mut complete) = (0, false);
        if let Some(slice) = first {
            self.acted(wanted, &slice);
            (rows, complete) = (slice.acted(), slice.is_last());
        }
        if !complete {
            let applied = self.apply(pair, wanted, SLICES).await;
            let (more, all) = applied.map_err(|mut error| {
                // The tombstone is there, whatever became of the rows.
                error.commit_sent = true;
                error
            })?;
            rows += more;
            complete = all;
        }
        Ok(Answer { rows, before, complete })
    }

    /// One transaction: the lock, the tombstone in a later statement, and the first rows with it.
    async fn decide_in_tx(&self, pair: &Pair, wanted: Outcome, rows: bool) -> Result<Decision, db::Error> {
        let mut tx = self.pool.begin(Begin::Durable).await?;
        match self.decision(tx.conn(), pair, wanted, rows).await {
            Ok(taken @ Decision::Taken { .. }) => tx.finish(Ok(taken)).await,
            Ok(other) => {
                tx.rollback().await;
                Ok(other)
            }
            Err(error) => tx.finish(Err(error)).await,
        }
    }

    async fn decision(
        &self,
        conn: &mut db::Conn,
        pair: &Pair,
        wanted: Outcome,
        rows: bool,
    ) -> Result<Decision, db::Error> {
        match sql::lock(conn, pair).await {
            Err(error) if error.kind == Kind::Contended => return Ok(Decision::PairBusy),
            locked => locked?,
        }
        let (outcome, before) = match sql::decide(conn, pair, wanted).await? {
            Some(decided) => decided,
            // Hand-written SQL was here at the same moment.
            None => return Ok(Decision::PairBusy),
        };
        if outcome != wanted {
            return Ok(Decision::Otherwise(outcome));
        }
        if !rows {
            return Ok(Decision::Taken { before, slice: None });
        }
        match sql::slice(conn, pair, wanted, SLICE).await {
            Ok(slice) => Ok(Decision::Taken { before, slice: Some(slice) }),
            Err(error) if error.kind == Kind::Contended => Ok(Decision::RowsBusy),
            Err(error) => Err(error),
        }
    }

    /// Carries a decision out, whose tombstone is committed, for about `budget`; tells how many rows, and whether none is left.
    /// Needs no lock of the pair: a stage that comes now finds the tombstone.
    async fn apply(&self, pair: &Pair, outcome: Outcome, budget: Duration) -> Result<(u64, bool), db::Error> {
        let begun = Instant::now();
        let mut busy_since = None;
        let mut rows = 0;
        while begun.elapsed() < budget {
            match db::within(LIMIT, self.slice_in_tx(pair, outcome)).await {
                Ok(slice) => {
                    busy_since = None;
                    rows += slice.acted();
                    self.acted(outcome, &slice);
                    if slice.is_last() {
                        return Ok((rows, true));
                    }
                }
                Err(error) if error.kind == Kind::Contended && error.certainly_not_applied() => {
                    if busy_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(rand::random_range(10..=50))).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((rows, false))
    }

    async fn slice_in_tx(&self, pair: &Pair, outcome: Outcome) -> Result<sql::Slice, db::Error> {
        let mut tx = self.pool.begin(Begin::Durable).await?;
        let work = sql::slice(tx.conn(), pair, outcome, SLICE).await;
        tx.finish(work).await
    }

    /// Counts and tells what a committed slice did.
    fn acted(&self, outcome: Outcome, slice: &sql::Slice) {
        match outcome {
            Outcome::Released if slice.acted() > 0 => self.drain.staged_now(),
            Outcome::Released => {}
            Outcome::Dropped => self.metrics.tickets.discarded("dropped", slice.acted()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(operation_id: &str, generation: i64) -> i32 {
        Pair { operation_id: operation_id.to_owned(), generation }.key()
    }

    #[test]
    fn the_key_of_a_pairs_lock_is_what_every_release_has() {
        assert_eq!(key("op-1", 1), KNOWN);
        assert_ne!(key("op-1", 2), KNOWN);
        assert_ne!(key("op-2", 1), KNOWN);
    }

    /// SHA-256 of eight bytes of the generation and the operation, its first four bytes, little-endian.
    const KNOWN: i32 = 1_538_426_488;
}
