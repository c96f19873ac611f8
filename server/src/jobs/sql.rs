//! All SQL that names `holdfast.job`. One function a file of `queries/`.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Job, State};
use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    FIND = "find",
    LIST = "list",
    INSERT = "insert",
    LOCK = "lock",
    COUNT_OPEN = "count_open",
    START = "start",
    PAUSE = "pause",
    RESUME = "resume",
    CANCEL = "cancel",
    CLAIM = "claim",
    SETTLE = "settle",
    OPEN = "open",
    PRUNE = "prune",
}

/// A word of the table; its CHECK lets no other in.
fn state(word: &str) -> Result<State, sqlx::Error> {
    State::parse(word).ok_or_else(|| sqlx::Error::Decode("a state of no meaning".into()))
}

impl sqlx::FromRow<'_, PgRow> for Job {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            state: state(row.try_get("state")?)?,
            requested_by: row.try_get("requested_by")?,
            created_at: row.try_get("created_at")?,
            expires_at: row.try_get("expires_at")?,
            expired_plan: row.try_get("expired_plan")?,
            started_at: row.try_get("started_at")?,
            ended_at: row.try_get("ended_at")?,
            reason: row.try_get("reason")?,
            max_rate: row.try_get("max_rate")?,
            ramp: row.try_get("ramp")?,
            max_failures: row.try_get("max_failures")?,
            in_flight: row.try_get("in_flight")?,
            matched: row.try_get("matched")?,
            done: row.try_get("done")?,
            failed: row.try_get("failed")?,
            expired: row.try_get("expired")?,
            pruned: row.try_get("pruned")?,
        })
    }
}

/// A job to be planned.
#[derive(Debug, Clone)]
pub struct Starting<'a> {
    /// Its name: a version 7 UUID, so that later ones are greater.
    pub id: Uuid,
    /// What kind it is.
    pub kind: &'a str,
    /// Who asks.
    pub requested_by: &'a str,
    /// For how long the plan can be run.
    pub lasts: Duration,
    /// Rows a second.
    pub max_rate: i32,
    /// Whether it begins with one row, then ten, then a hundred.
    pub ramp: bool,
    /// The share of failures above which it pauses itself.
    pub max_failures: f64,
    /// Rows of its set.
    pub matched: i64,
}

/// What a slice was claimed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claimed {
    pub id: Uuid,
    pub state: State,
    pub generation: i64,
    pub rows: i32,
    pub matched: i64,
}

/// A slice's books.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Books {
    pub done: i64,
    pub failed: i64,
    pub expired: i64,
    pub pruned: i64,
}

/// Jobs that are not over.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub(super) struct Open {
    pub running: i64,
    pub paused: i64,
    /// Seconds until the first one's turn; absent: none waits for one.
    pub due: Option<f64>,
}

/// A job of this kind, if there is one of this name.
///
/// # Errors
/// The database's.
pub async fn find(conn: &mut db::Conn, kind: &str, id: Uuid) -> Result<Option<Job>, db::Error> {
    Ok(sqlx::query_as(FIND).bind(id).bind(kind).fetch_optional(conn).await?)
}

/// Jobs of this kind, the newest first, older than `before`.
///
/// # Errors
/// The database's.
pub async fn list(
    conn: &mut db::Conn,
    kind: &str,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Job>, db::Error> {
    Ok(sqlx::query_as(LIST).bind(kind).bind(before).bind(limit).fetch_all(conn).await?)
}

/// Writes a plan.
///
/// # Errors
/// The database's.
pub async fn insert(conn: &mut db::Conn, plan: &Starting<'_>) -> Result<(), db::Error> {
    sqlx::query(INSERT)
        .bind(plan.id)
        .bind(plan.kind)
        .bind(plan.requested_by)
        .bind(plan.lasts.as_secs_f64())
        .bind(plan.max_rate)
        .bind(plan.ramp.then_some(1))
        .bind(plan.max_failures)
        .bind(plan.matched)
        .execute(conn)
        .await?;
    Ok(())
}

/// Nobody else starts a job until this transaction ends.
///
/// # Errors
/// The database's.
pub async fn lock(conn: &mut db::Conn) -> Result<(), db::Error> {
    sqlx::query(LOCK).execute(conn).await?;
    Ok(())
}

/// Jobs that are started and not ended, of any kind.
///
/// # Errors
/// The database's.
pub async fn count_open(conn: &mut db::Conn) -> Result<i64, db::Error> {
    Ok(sqlx::query_scalar(COUNT_OPEN).fetch_one(conn).await?)
}

/// Runs a plan; false: it is none any more. `max_rate`: another one than it was planned with.
///
/// # Errors
/// The database's.
pub async fn start(
    conn: &mut db::Conn,
    kind: &str,
    id: Uuid,
    by: &str,
    max_rate: Option<i32>,
    ramp: bool,
) -> Result<bool, db::Error> {
    let started = sqlx::query(START).bind(id).bind(kind).bind(by).bind(max_rate).bind(ramp);
    Ok(started.execute(conn).await?.rows_affected() > 0)
}

/// Pauses it; false: it is not under way.
///
/// # Errors
/// The database's.
pub async fn pause(conn: &mut db::Conn, kind: &str, id: Uuid, reason: &str) -> Result<bool, db::Error> {
    Ok(sqlx::query(PAUSE).bind(id).bind(kind).bind(reason).execute(conn).await?.rows_affected() > 0)
}

/// Has it go on; false: it is not paused.
///
/// # Errors
/// The database's.
pub async fn resume(conn: &mut db::Conn, kind: &str, id: Uuid) -> Result<bool, db::Error> {
    Ok(sqlx::query(RESUME).bind(id).bind(kind).execute(conn).await?.rows_affected() > 0)
}

/// Ends it; false: it is over.
///
/// # Errors
/// The database's.
pub async fn cancel(conn: &mut db::Conn, kind: &str, id: Uuid, reason: &str) -> Result<bool, db::Error> {
    Ok(sqlx::query(CANCEL).bind(id).bind(kind).bind(reason).execute(conn).await?.rows_affected() > 0)
}

/// A slice of whichever job of this kind is due.
pub(super) async fn claim(
    conn: &mut db::Conn,
    kind: &str,
    who: &str,
    lease: Duration,
    most: i32,
) -> Result<Option<Claimed>, db::Error> {
    let row = sqlx::query(CLAIM)
        .bind(who)
        .bind(lease.as_secs_f64())
        .bind(most)
        .bind(kind)
        .fetch_optional(conn)
        .await?;
    let read = |row: &PgRow| {
        Ok::<_, sqlx::Error>(Claimed {
            id: row.try_get("id")?,
            state: state(row.try_get("state")?)?,
            generation: row.try_get("generation")?,
            rows: row.try_get("booked")?,
            matched: row.try_get("matched")?,
        })
    };
    Ok(row.as_ref().map(read).transpose()?)
}

/// Writes a slice's books; the state the job is in then. `None`: it is another one's by now.
pub(super) async fn settle(
    conn: &mut db::Conn,
    claimed: &Claimed,
    books: Books,
    next: Option<State>,
    cleared: bool,
    wait: Duration,
) -> Result<Option<State>, db::Error> {
    let word: Option<String> = sqlx::query_scalar(SETTLE)
        .bind(claimed.id)
        .bind(claimed.generation)
        .bind(books.done)
        .bind(books.failed)
        .bind(books.expired)
        .bind(books.pruned)
        .bind(next.map(State::as_str))
        .bind(cleared)
        .bind(wait.as_secs_f64())
        .fetch_optional(conn)
        .await?;
    Ok(word.as_deref().map(state).transpose()?)
}

pub(super) async fn open(conn: &mut db::Conn) -> Result<Open, db::Error> {
    Ok(sqlx::query_as(OPEN).fetch_one(conn).await?)
}

/// Forgets jobs that ended long ago, and plans that nobody ran; tells how many.
///
/// # Errors
/// The database's.
pub async fn prune(conn: &mut db::Conn, kept: Duration, limit: i64) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(PRUNE).bind(kept.as_secs_f64()).bind(limit).fetch_one(conn).await?;
    Ok(gone.unsigned_abs())
}
