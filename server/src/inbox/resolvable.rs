//! The inbox's part in the tickets' resolver: which rows are undecided, and what a verdict does to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_proto::consumption::MOST_LOST_STARTS;

use super::sql;
use crate::db;
use crate::metrics::Inbox;
use crate::tickets::{Applied, Resolvable, Verdicts};

/// An idle inbox is looked at each so many walks: what this replica has begun it knows of itself, and what another one has left
/// behind when it died can wait for seconds. A look each second would be a third of what an idle service costs.
const IDLE_WALKS: u32 = 8;

/// `holdfast.event_inbox` as the resolver sees it.
pub struct InboxRows {
    metrics: Inbox,
    /// Something was begun under a ticket since the last walk that found nothing.
    stirred: Arc<AtomicBool>,
    /// Walks since the last look.
    rested: AtomicU32,
}

impl InboxRows {
    pub(super) fn new(metrics: Inbox, stirred: Arc<AtomicBool>) -> Self {
        Self { metrics, stirred, rested: AtomicU32::new(0) }
    }

    /// Whether this walk looks.
    fn looks(&self) -> bool {
        if self.stirred.swap(false, Ordering::AcqRel)
            || self.rested.fetch_add(1, Ordering::Relaxed) + 1 >= IDLE_WALKS
        {
            self.rested.store(0, Ordering::Relaxed);
            return true;
        }
        false
    }
}

impl Resolvable for InboxRows {
    fn undecided<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        after: Option<i64>,
        limit: i64,
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>> {
        async move {
            if after.is_none() && !self.looks() {
                return Ok(Vec::new());
            }
            let found = sql::undecided(conn, after, limit).await;
            // Until nothing is found, and after a look that failed.
            if found.as_ref().map_or(true, |tickets| !tickets.is_empty()) {
                self.stirred.store(true, Ordering::Release);
            }
            found
        }
        .boxed()
    }

    fn apply<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        verdicts: &'a Verdicts,
    ) -> BoxFuture<'a, Result<Applied, db::Error>> {
        async move {
            let (took, more_kept) = sql::keep(conn, &verdicts.committed).await?;
            let (lost, more_lost) = sql::lose(conn, &verdicts.rolled_back, MOST_LOST_STARTS).await?;
            // Before the commit; one that fails is counted again, which is no harm to anybody.
            took.into_iter().for_each(|took| self.metrics.ended("processed", Some(took)));
            self.metrics.lost("rolled_back", lost);
            // Nothing of it is the drain's: no row became deliverable, and none was discarded.
            Ok(Applied { kept: 0, discarded: 0, more: more_kept || more_lost })
        }
        .boxed()
    }

    fn naming<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        tickets: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>> {
        sql::naming(conn, tickets).boxed()
    }
}
