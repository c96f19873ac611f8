//! The outbox's rows as the resolver sees them.
//!
//! The resolver's walk and the drainer's poll both come once a second and mostly find nothing; so the walk's first page asks
//! for both in one statement, and hands on what is the drainer's ([`Looks`]).

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::pause::Seen;
use super::sql;
use crate::db;
use crate::tickets::{Applied, Resolvable, Verdicts};

/// Registers `event_outbox` with the tickets' resolver.
#[derive(Debug)]
pub struct OutboxRows {
    lease: Duration,
    looks: watch::Sender<bool>,
    paused: Seen,
}

/// What the resolver sees of the drainer's, each time that it looks.
#[derive(Debug, Clone)]
pub struct Looks {
    /// Whether there was work for a pass.
    pub(super) work: watch::Receiver<bool>,
    /// The pause of the drain, as last seen; the drainer tells, too.
    pub(super) paused: Seen,
}

impl OutboxRows {
    /// The rows, and what the resolver sees of the drainer's work. `lease` is the drain's; `paused` is told of its pause.
    pub fn new(lease: Duration, paused: Seen) -> (Self, Looks) {
        let (looks, work) = watch::channel(false);
        (Self { lease, looks, paused: paused.clone() }, Looks { work, paused })
    }
}

impl Resolvable for OutboxRows {
    fn undecided<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        after: Option<i64>,
        limit: i64,
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>> {
        async move {
            if after.is_some() {
                return sql::undecided(conn, after, limit).await;
            }
            let waiting = sql::work_waits(conn, self.lease.as_secs_f64(), limit).await?;
            self.paused.set(waiting.pause());
            self.looks.send_replace(waiting.work);
            Ok(waiting.tickets)
        }
        .boxed()
    }

    fn apply<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        verdicts: &'a Verdicts,
    ) -> BoxFuture<'a, Result<Applied, db::Error>> {
        async move {
            let kept = sql::keep(conn, &verdicts.committed).await?;
            let discarded = sql::discard_rolled_back(conn, &verdicts.rolled_back).await?;
            let more = kept >= sql::DECIDED_PER_TX || discarded >= sql::DECIDED_PER_TX;
            Ok(Applied { kept, discarded, more })
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
