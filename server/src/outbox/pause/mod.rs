//! The pause of a service's drain: a row in the service's own database, seen by every replica.
//!
//! Guarantees: once a pause was answered nothing is claimed, by no replica, until it is ended: it is written under the drain's
//! lock, as every claim is made, so a claim either committed before or is made by a statement that sees it (`claim.sql`).
//! What was in flight ends as ever. A second pause changes nothing: the first one's author and reason stay. Does not: touch
//! staging, holds or the resolver; change the service's health; wake the drainer. Design, section 4.

mod sql;

use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::operator::Refused;
use super::sql::lock_patiently;
use crate::db::{self, Begin, Pool, Tx};
use crate::metrics::Drain;

pub(super) use sql::Columns;
pub use sql::QUERIES;

/// Most time for one call.
const LIMIT: Duration = Duration::from_secs(8);

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who.
    pub by: String,
    /// Since when, by the database's clock.
    pub since: OffsetDateTime,
    /// Why.
    pub reason: String,
}

/// What this replica saw last: each pass and each look for work, once a second, tells. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Seen {
    latest: watch::Sender<Option<Pause>>,
    metrics: Drain,
}

impl Seen {
    /// Nothing yet.
    pub fn new(metrics: Drain) -> Self {
        Self { latest: watch::Sender::new(None), metrics }
    }

    /// The pause as last seen.
    pub fn get(&self) -> Option<Pause> {
        self.latest.borrow().clone()
    }

    pub(super) fn set(&self, pause: Option<Pause>) {
        self.metrics.paused.set(i64::from(pause.is_some()));
        self.latest.send_if_modified(|latest| {
            let news = *latest != pause;
            *latest = pause;
            news
        });
    }
}

/// Whether the drain is paused, now.
///
/// # Errors
/// The database's.
pub async fn look(conn: &mut db::Conn) -> Result<Option<Pause>, db::Error> {
    sql::look(conn).await
}

/// The same as a question that can be sent along with a BEGIN.
pub(super) fn question() -> String {
    sql::question()
}

/// What it was answered with.
pub(super) fn answer(rows: Option<&db::Answer>) -> Result<Option<Pause>, db::Error> {
    rows.and_then(|rows| rows.first()).map_or(Ok(None), sql::read)
}

/// One service's pause.
#[derive(Clone)]
pub(super) struct Desk {
    pool: Pool,
    seen: Seen,
}

impl Desk {
    pub(super) fn new(pool: Pool, seen: Seen) -> Self {
        Self { pool, seen }
    }

    /// Pauses; the pause that is in force, and whether it was before.
    pub(super) async fn pause(&self, by: &str, reason: &str) -> Result<(Pause, bool), Refused> {
        let done = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = pausing(&mut tx, by, reason).await;
            tx.finish(work).await
        });
        let (pause, before) = done.await?.ok_or(Refused::Busy)?;
        self.seen.set(Some(pause.clone()));
        Ok((pause, before))
    }

    /// Ends the pause, if there is one.
    pub(super) async fn resume(&self) -> Result<Option<Pause>, Refused> {
        let ended = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = sql::resume(tx.conn()).await;
            tx.finish(work).await
        })
        .await?;
        self.seen.set(None);
        Ok(ended)
    }
}

/// `None`: the lock was not to be had, or somebody ended the pause at this moment.
async fn pausing(tx: &mut Tx, by: &str, reason: &str) -> Result<Option<(Pause, bool)>, db::Error> {
    // One that can be seen was committed under the lock: what it promises holds already, however busy the drain is.
    if let Some(first) = sql::look(tx.conn()).await? {
        return Ok(Some((first, true)));
    }
    if !lock_patiently(tx.conn()).await? {
        return Ok(None);
    }
    if let Some(made) = sql::pause(tx.conn(), by, reason).await? {
        return Ok(Some((made, false)));
    }
    Ok(sql::look(tx.conn()).await?.map(|first| (first, true)))
}
