//! The claim's path: what is seen, claimed, healed, promoted.

use std::time::Duration;

use sqlx::Row as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::db;
use crate::outbox::pause::{self, Pause};

/// Which waiting rows hold the later ones of their key back.
#[derive(Debug, Clone, Copy)]
pub(in crate::outbox) struct Blocks {
    pub unroutable: bool,
    pub parked: bool,
}

/// Whether new events announce themselves.
pub(in crate::outbox) async fn announces(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar::<_, Option<bool>>(ANNOUNCES).fetch_one(conn).await?.unwrap_or(false))
}

/// What there is to do.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Waiting {
    standby: bool,
    /// The first tickets that undecided rows name.
    pub tickets: Vec<i64>,
    /// Whether a pass would find something.
    pub work: bool,
    #[sqlx(flatten)]
    pause: pause::Columns,
}

impl Waiting {
    /// The pause of the drain, if there is one.
    pub(in crate::outbox) fn pause(&self) -> Option<Pause> {
        self.pause.clone().pause()
    }
}

/// A standby answers like a primary without work, for ever; so it is no answer.
pub(in crate::outbox) async fn work_waits(
    conn: &mut db::Conn,
    lease_seconds: f64,
    tickets: i64,
) -> Result<Waiting, db::Error> {
    let waiting: Waiting =
        sqlx::query_as(WORK_WAITS).bind(lease_seconds).bind(tickets).fetch_one(&mut *conn).await?;
    if waiting.standby {
        return Err(db::Error::standby());
    }
    conn.beat();
    Ok(waiting)
}

/// [`try_drain_lock`] as a question that can be sent along with the BEGIN.
pub(in crate::outbox) fn drain_lock_question() -> String {
    LOCK.replace("$1", &LOCK_CLASS.to_string()).replace("$2", &DRAIN_LOCK.to_string())
}

/// Whether it was answered with the lock.
pub(in crate::outbox) fn drain_lock_answer(answers: &[db::Answer]) -> Result<bool, db::Error> {
    match answers.first().and_then(|rows| rows.first()) {
        Some(row) => Ok(row.try_get(0)?),
        None => Ok(false),
    }
}

pub(in crate::outbox) async fn try_drain_lock(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar(LOCK).bind(LOCK_CLASS).bind(DRAIN_LOCK).fetch_one(conn).await?)
}

pub(in crate::outbox) async fn try_watch_lock(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar(LOCK).bind(LOCK_CLASS).bind(WATCH_LOCK).fetch_one(conn).await?)
}

/// A row that was healed or parked.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Parking {
    pub id: Uuid,
    pub key: Option<String>,
    /// Whether it waits for an operator now, and why.
    pub parked: bool,
    pub reason: String,
    /// Rows of its key behind it, at most 1,000.
    pub behind: i64,
}

/// How long an outcome or an operator's verb waits for the drain lock: a lock time-out would abort the work itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Takes the drain lock, tried again and again for a second; tells whether it is held.
pub(in crate::outbox) async fn lock_patiently(conn: &mut db::Conn) -> Result<bool, db::Error> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        if try_drain_lock(conn).await? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(2..=10))).await;
    }
}

pub(in crate::outbox) async fn heal(
    conn: &mut db::Conn,
    lease_seconds: f64,
) -> Result<Vec<Parking>, db::Error> {
    Ok(sqlx::query_as(HEAL).bind(lease_seconds).fetch_all(conn).await?)
}

/// Removes the batches that [`heal`] has emptied.
pub(in crate::outbox) async fn close_lapsed(
    conn: &mut db::Conn,
    lease_seconds: f64,
) -> Result<(), db::Error> {
    sqlx::query(CLOSE_LAPSED).bind(lease_seconds).execute(conn).await?;
    Ok(())
}

/// Keys of the strays healed; a keyless row counts as `None`.
pub(in crate::outbox) async fn heal_strays(
    conn: &mut db::Conn,
    lease_seconds: f64,
) -> Result<Vec<Option<String>>, db::Error> {
    Ok(sqlx::query_scalar(HEAL_STRAYS).bind(lease_seconds).fetch_all(conn).await?)
}

pub(in crate::outbox) async fn settle_ended(
    conn: &mut db::Conn,
    limit: i64,
) -> Result<Vec<Option<String>>, db::Error> {
    Ok(sqlx::query_scalar(SETTLE_ENDED).bind(limit).fetch_all(conn).await?)
}

/// About how many followers one statement gives back: it is part of a settle, which has a time limit. The others of a key come when
/// these have gone.
const PROMOTE_AT_ONCE: i64 = 8_192;

pub(in crate::outbox) async fn promote(
    conn: &mut db::Conn,
    keys: &[String],
    per_key: i64,
    blocks: Blocks,
) -> Result<u64, db::Error> {
    let Ok(number @ 1..) = i64::try_from(keys.len()) else { return Ok(0) };
    // One at least: a key of which nothing is given back would wait for nobody.
    let per_key = per_key.min(PROMOTE_AT_ONCE / number).max(1);
    Ok(sqlx::query(PROMOTE)
        .bind(keys)
        .bind(per_key)
        .bind(blocks.unroutable)
        .bind(blocks.parked)
        .execute(conn)
        .await?
        .rows_affected())
}

/// The most keys that [`stranded`] tells at once (its LIMIT).
pub(in crate::outbox) const STRANDED_AT_MOST: usize = 1_000;

pub(in crate::outbox) async fn stranded(
    conn: &mut db::Conn,
    blocks: Blocks,
) -> Result<Vec<String>, db::Error> {
    Ok(sqlx::query_scalar(STRANDED).bind(blocks.unroutable).bind(blocks.parked).fetch_all(conn).await?)
}

/// One line of `see.sql`: a row that may be taken, or a free ticket that must be decided first.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Seen {
    pub id: Option<Uuid>,
    pub seq: Option<i64>,
    pub keyed: Option<bool>,
    pub size: Option<i32>,
    pub compressed: Option<bool>,
    pub free_ticket: Option<i64>,
}

pub(in crate::outbox) async fn see(
    conn: &mut db::Conn,
    committed: &[i64],
    limit: i64,
    max_free: i64,
) -> Result<Vec<Seen>, db::Error> {
    Ok(sqlx::query_as(SEE).bind(committed).bind(limit).bind(max_free).fetch_all(conn).await?)
}

/// One line of `claim.sql`.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Claimed {
    pub id: Uuid,
    pub seq: i64,
    pub goes: bool,
    pub claim_generation: i64,
    pub attempts: i32,
    pub ordering_key: Option<String>,
    pub event_type: String,
    pub created_at: i64,
    pub envelope: Option<String>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// The batch that all that goes was entered in.
    pub batch: Option<i64>,
}

pub(in crate::outbox) async fn claim(
    conn: &mut db::Conn,
    ids: &[Uuid],
    committed: &[i64],
    claimed_by: &str,
    blocks: Blocks,
    earlier_committed: &[i64],
) -> Result<Vec<Claimed>, db::Error> {
    Ok(sqlx::query_as(CLAIM)
        .bind(ids)
        .bind(committed)
        .bind(claimed_by)
        .bind(blocks.unroutable)
        .bind(earlier_committed)
        .bind(blocks.parked)
        .fetch_all(conn)
        .await?)
}

/// Closes batches, as a statement that can be sent along with the COMMIT.
pub(in crate::outbox) fn close_claims(batches: &[i64]) -> String {
    let list = batches.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    CLOSE_CLAIMS.replace("$1::bigint[]", &format!("'{{{list}}}'::bigint[]"))
}

/// The next row that must be claimed alone.
pub(in crate::outbox) async fn lone(conn: &mut db::Conn) -> Result<Option<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(LONE).fetch_optional(conn).await?)
}

pub(in crate::outbox) async fn lone_waits(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar(LONE_WAITS).fetch_one(conn).await?)
}
