//! What an operator can do about parked events: see them, send them off again, discard them.
//!
//! Guarantees: only parked rows are touched, each verb tells which ones and why not the others; a discard is counted in the
//! tally in the same transaction, and the followers of what went are given back to the claim's path; the drain lock comes
//! before any row lock and is waited for as patiently as a settle does. Does not: wake the drainer (its poll finds the rows;
//! [`super::drain::Hints::staged_now`] is quicker), check who may do this, or keep an audit: that is the caller's. Design,
//! section 4.

mod sql;

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::drain::Options;
use super::operator::{Answer, MOST, Refused, Skipped, WhyNot};
use super::sql::{Blocks, lock_patiently, promote};
use crate::db::{self, Begin, Pool, Tx};
use crate::metrics::ServiceMetrics;

pub use sql::QUERIES;

/// As a settle gives back.
const PROMOTE_PER_KEY: i64 = 128;
/// Parked rows that a filter's slice looks at.
const SCAN: usize = 5_000;
/// Most time for one call.
const LIMIT: Duration = Duration::from_secs(8);

/// Which parked events to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this type.
    pub event_type: Option<String>,
    /// Only this ordering key.
    pub ordering_key: Option<String>,
}

/// A parked event.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Parked {
    /// The event's id.
    pub id: Uuid,
    /// Place in the outbox.
    pub seq: i64,
    /// The event's type, at most 255 characters of it.
    pub event_type: String,
    /// The ordering key in force, at most 1,024 characters of it.
    pub ordering_key: Option<String>,
    /// When it was staged; absent for a time that no calendar has.
    pub created_at: Option<OffsetDateTime>,
    /// When it was parked; absent as above.
    pub parked_at: Option<OffsetDateTime>,
    /// The evidence.
    pub reason: String,
    /// Failed attempts.
    pub attempts: i32,
    /// Claims in a row that ended without an outcome.
    pub lone_claims: i32,
    /// Rows of its key behind it, at most 1,000.
    pub behind: i64,
}

/// A page of parked events, by `seq`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The events.
    pub events: Vec<Parked>,
    /// What to pass as `after` for the next page; `None`: this is the last.
    pub next: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Unpark,
    Discard,
}

/// One service's parked events.
#[derive(Clone)]
pub struct Desk {
    pool: Pool,
    metrics: ServiceMetrics,
    blocks: Blocks,
}

impl Desk {
    /// For a service that is drained with these options.
    pub fn new(pool: Pool, metrics: ServiceMetrics, options: &Options) -> Self {
        Self { pool, metrics, blocks: options.blocks() }
    }

    /// Lists parked events with a greater `seq` than `after`, at most `limit` (1 to [`MOST`]).
    ///
    /// # Errors
    /// The database's.
    pub async fn list(&self, filter: &Filter, after: Option<i64>, limit: usize) -> Result<Page, db::Error> {
        let limit = limit.clamp(1, MOST);
        let mut events = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = sql::list(read.conn(), filter, after, limit + 1).await;
            read.finish(found).await
        })
        .await?;
        let more = events.len() > limit;
        events.truncate(limit);
        let next = events.last().map(|last| last.seq).filter(|_| more);
        Ok(Page { events, next })
    }

    /// The next slice of what a filter means, and where the one after it begins; it looks at 5,000 parked rows at most.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn find(
        &self,
        filter: &Filter,
        after: Option<i64>,
    ) -> Result<(Vec<Uuid>, Option<i64>), db::Error> {
        let found = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = sql::find(read.conn(), filter, after, SCAN).await;
            read.finish(found).await
        })
        .await?;
        let (mut ids, mut next) = (Vec::new(), None);
        let all = found.len() < SCAN;
        for row in found {
            if ids.len() == MOST {
                return Ok((ids, next));
            }
            next = Some(row.seq);
            ids.extend(row.wanted.then_some(row.id));
        }
        Ok((ids, next.filter(|_| !all)))
    }

    /// Sends parked events off again: pending as if just staged, their place in the order and their attempts kept.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn unpark(&self, ids: &[Uuid]) -> Result<Answer, Refused> {
        self.act(Verb::Unpark, ids).await
    }

    /// Deletes parked events, counted as `discarded_by_admin`. Their followers go on.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn discard(&self, ids: &[Uuid]) -> Result<Answer, Refused> {
        let answer = self.act(Verb::Discard, ids).await?;
        self.metrics.tickets.discarded("discarded_by_admin", answer.acted.len() as u64);
        Ok(answer)
    }

    async fn act(&self, verb: Verb, ids: &[Uuid]) -> Result<Answer, Refused> {
        let done = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = self.work(&mut tx, verb, ids).await;
            tx.finish(work).await
        });
        done.await?.ok_or(Refused::Busy)
    }

    /// `None`: the lock was not to be had.
    async fn work(&self, tx: &mut Tx, verb: Verb, ids: &[Uuid]) -> Result<Option<Answer>, db::Error> {
        if !lock_patiently(tx.conn()).await? {
            return Ok(None);
        }
        let mut answer = Answer::default();
        match verb {
            Verb::Unpark => answer.acted = sql::unpark(tx.conn(), ids).await?,
            Verb::Discard => {
                let gone = sql::discard(tx.conn(), ids).await?;
                let keys: Vec<String> = gone.iter().filter_map(|row| row.ordering_key.clone()).collect();
                promote(tx.conn(), &keys, PROMOTE_PER_KEY, self.blocks).await?;
                answer.acted = gone.into_iter().map(|row| row.id).collect();
            }
        }
        let left: Vec<Uuid> = ids.iter().copied().filter(|id| !answer.acted.contains(id)).collect();
        if !left.is_empty() {
            let there = sql::left(tx.conn(), &left).await?;
            let why = |id: Uuid| match there.iter().find(|row| row.id == id) {
                None => WhyNot::NotFound,
                Some(row) if row.parked => WhyNot::Busy,
                Some(_) => WhyNot::NotParked,
            };
            answer.skipped = left.into_iter().map(|id| Skipped { id, why: why(id), behind: None }).collect();
        }
        Ok(Some(answer))
    }
}
