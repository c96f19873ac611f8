//! What an operator does to many events, by ids or by a filter.
//!
//! Guarantees: by ids it is one transaction; by a filter it goes in slices of at most [`MOST`], each a transaction of its own,
//! for some seconds, and then says where to go on; every event that was left alone is counted with the reason, and the first
//! [`MOST`] of them are named. The drainer is woken for what may go. Does not: check who may do this, or keep an audit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::drain::{Hints, Options};
use super::pause::{self, Pause, Seen};
use super::pending::{self, Why};
use super::{parked, unresolved};
use crate::db::{self, Pool};
use crate::metrics::ServiceMetrics;

/// Most ids of a call, most rows of a slice, most skipped events that an answer names.
pub const MOST: usize = 1_000;
/// For how long one call goes on with slices.
const SLICES: Duration = Duration::from_secs(4);

/// Why a verb left an event alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyNot {
    /// There is no such event.
    NotFound,
    /// Somebody else has its row locked.
    Busy,
    /// It is not parked.
    NotParked,
    /// Its transaction is not known to have ended.
    Unresolved,
    /// It is held.
    Held,
    /// It is parked.
    Parked,
    /// A publisher has it.
    InFlight,
    /// It waits behind an earlier one of its key.
    Behind,
    /// It is due.
    Ready,
    /// It is published.
    Published,
}

/// An event that was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The event.
    pub id: Uuid,
    /// Why.
    pub why: WhyNot,
    /// With [`WhyNot::Behind`]: the one that holds it back, if it was found.
    pub behind: Option<Uuid>,
}

/// What a verb did in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Those it was done to.
    pub acted: Vec<Uuid>,
    /// The others, and why.
    pub skipped: Vec<Skipped>,
}

/// What a verb did in one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Events that were found.
    pub matched: u64,
    /// Those it was done to.
    pub acted: u64,
    /// How many it was not done to, by why.
    pub skipped: BTreeMap<WhyNot, u64>,
    /// The first of these.
    pub named: Vec<Skipped>,
    /// Where to go on; `None`: all was looked at.
    pub next: Option<i64>,
}

impl Done {
    fn add(&mut self, answer: Answer) {
        self.acted += answer.acted.len() as u64;
        self.matched += answer.acted.len() as u64;
        for one in answer.skipped {
            self.matched += u64::from(one.why != WhyNot::NotFound);
            *self.skipped.entry(one.why).or_default() += 1;
            if self.named.len() < MOST {
                self.named.push(one);
            }
        }
    }
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The drain was busy for as long as we wait. Nothing was done; try again.
    #[error("the drain of this service was busy for a second; nothing was done")]
    Busy,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] db::Error),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Parked events go off again.
    Unpark,
    /// Parked events are deleted.
    Discard,
    /// Events that wait for a time are due at once.
    Retry,
}

/// To which events.
#[derive(Debug, Clone)]
pub enum Selection {
    /// These, at most [`MOST`].
    Ids(Vec<Uuid>),
    /// These, behind this `seq`.
    Filter(parked::Filter, Option<i64>),
}

/// One service's operator's desk. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    pool: Pool,
    parked: parked::Desk,
    pending: pending::Desk,
    pause: pause::Desk,
    seen: Seen,
    drain: Hints,
}

impl Operator {
    /// For a service that is drained with these options; `drain` is told of rows that may go.
    pub fn new(pool: Pool, metrics: ServiceMetrics, options: &Options, seen: Seen, drain: Hints) -> Self {
        Self {
            parked: parked::Desk::new(pool.clone(), metrics, options),
            pending: pending::Desk::new(pool.clone(), options),
            pause: pause::Desk::new(pool.clone(), seen.clone()),
            pool,
            seen,
            drain,
        }
    }

    /// Lists what is not out; see [`pending::Desk::list`].
    ///
    /// # Errors
    /// The database's.
    pub async fn list_pending(
        &self,
        filter: &pending::Filter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<pending::Page, db::Error> {
        self.pending.list(filter, after, limit).await
    }

    /// Lists what is parked; see [`parked::Desk::list`].
    ///
    /// # Errors
    /// The database's.
    pub async fn list_parked(
        &self,
        filter: &parked::Filter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<parked::Page, db::Error> {
        self.parked.list(filter, after, limit).await
    }

    /// Lists the transactions that rows wait for; see [`unresolved::list`].
    ///
    /// # Errors
    /// The database's.
    pub async fn list_unresolved(
        &self,
        after: Option<i64>,
        limit: usize,
    ) -> Result<unresolved::Page, db::Error> {
        unresolved::list(&self.pool, after, limit).await
    }

    /// The pause of the drain, asked of the database.
    ///
    /// # Errors
    /// The database's.
    pub async fn look_for_pause(&self) -> Result<Option<Pause>, db::Error> {
        let mut read = self.pool.read().await?;
        let found = pause::look(read.conn()).await;
        read.finish(found).await
    }

    /// The pause of the drain, as this replica saw it last: about once a second.
    pub fn pause_seen(&self) -> Option<Pause> {
        self.seen.get()
    }

    /// Pauses the drain; the pause that is in force now, and whether it was before.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn pause(&self, by: &str, reason: &str) -> Result<(Pause, bool), Refused> {
        self.pause.pause(by, reason).await
    }

    /// Ends the pause of the drain, and tells which that was.
    ///
    /// # Errors
    /// The database's.
    pub async fn resume(&self) -> Result<Option<Pause>, Refused> {
        let ended = self.pause.resume().await?;
        self.drain.staged_now();
        Ok(ended)
    }

    /// Does it. By filter: what was done before a slice failed is told, with what that one failed of ([`Done::next`] is then
    /// where it begins); it may have been done if its commit's answer was lost.
    ///
    /// # Errors
    /// See [`Refused`]: nothing was done, or, by the error's own account, perhaps.
    pub async fn act(&self, verb: Verb, on: Selection) -> Result<(Done, Option<Refused>), Refused> {
        let mut done = Done::default();
        let mut stopped = None;
        match on {
            Selection::Ids(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                done.add(self.once(verb, &ids).await?);
            }
            Selection::Filter(filter, after) => {
                if let Err(refused) = self.in_slices(verb, &filter, after, &mut done).await {
                    if done.matched == 0 {
                        return Err(refused);
                    }
                    stopped = Some(refused);
                }
            }
        }
        Ok((done, stopped))
    }

    async fn in_slices(
        &self,
        verb: Verb,
        filter: &parked::Filter,
        after: Option<i64>,
        done: &mut Done,
    ) -> Result<(), Refused> {
        let begun = Instant::now();
        done.next = after;
        loop {
            let (ids, next) = self.find(verb, filter, done.next).await?;
            if !ids.is_empty() {
                done.add(self.once(verb, &ids).await?);
            }
            done.next = next;
            if next.is_none() || begun.elapsed() >= SLICES {
                return Ok(());
            }
        }
    }

    /// The next slice of a filter's events, and where the one after it begins.
    async fn find(
        &self,
        verb: Verb,
        filter: &parked::Filter,
        after: Option<i64>,
    ) -> Result<(Vec<Uuid>, Option<i64>), db::Error> {
        if verb != Verb::Retry {
            return self.parked.find(filter, after).await;
        }
        let filter = pending::Filter {
            event_type: filter.event_type.clone(),
            ordering_key: filter.ordering_key.clone(),
            why: Some(vec![Why::BackingOff, Why::Unroutable]),
        };
        let page = self.pending.list(&filter, after, MOST).await?;
        Ok((page.events.into_iter().map(|event| event.id).collect(), page.next))
    }

    /// One transaction.
    async fn once(&self, verb: Verb, ids: &[Uuid]) -> Result<Answer, Refused> {
        let answer = match verb {
            Verb::Unpark => self.parked.unpark(ids).await,
            Verb::Discard => self.parked.discard(ids).await,
            Verb::Retry => self.pending.retry(ids).await,
        }?;
        if !answer.acted.is_empty() {
            self.drain.staged_now();
        }
        Ok(answer)
    }
}
