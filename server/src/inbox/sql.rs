//! All SQL that names `holdfast.event_inbox`. One function a file of `queries/`.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{FromRow as _, Row as _};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Binding, Cause, Delivery, Ended, Key};
use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    BEGIN = "begin",
    LOOK = "look",
    LOOK_ALL = "look_all",
    MEMORY = "memory",
    WRITE = "write",
    SURFACED = "surfaced",
    FLUSH = "flush",
    UNDECIDED = "undecided",
    NAMING = "naming",
    KEEP = "keep",
    LOSE = "lose",
    PRUNE = "prune",
    DEPTH = "depth",
}

/// Makes a COMMIT wait for the disk, whatever its transaction began as.
pub(super) const SYNCHRONOUS: &str = "SET LOCAL synchronous_commit = on";

/// Rows decided in one transaction: it must stay far below its time limits.
const DECIDED_PER_TX: i64 = 1_000;

/// A message in a queue, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Who sent it.
    pub source_service: String,
    /// Its type.
    pub event_type: String,
    /// When its series began.
    pub received_at: OffsetDateTime,
    /// The same as its token says it.
    pub epoch: i64,
    /// When it was marked as processed.
    pub processed_at: Option<OffsetDateTime>,
    /// The ticket it was begun with.
    pub ticket: Option<i64>,
    /// The lease's holder.
    pub lease_token: Option<Uuid>,
    /// When the lease runs out.
    pub lease_until: Option<OffsetDateTime>,
    /// Seconds that the lease has left.
    pub remaining: Option<f64>,
    /// Starts.
    pub generation: i64,
    /// When it was last begun.
    pub begun_at: Option<OffsetDateTime>,
    /// How the last start ended.
    pub ended: Option<Ended>,
    /// Errors of the series.
    pub failures: i32,
    /// Starts of the series that ended in nothing.
    pub lost_starts: i32,
    /// Why the series is over.
    pub cause: Option<Cause>,
    /// When its letter was on its way.
    pub dead_lettered_at: Option<OffsetDateTime>,
    /// How often a new series was begun.
    pub cycle: i32,
    /// The newest replay.
    pub replay_id: Option<Uuid>,
    /// What the broker said.
    pub redelivered: bool,
    /// What the last error was.
    pub last_error: Option<String>,
    /// When this was so.
    pub looked_at: OffsetDateTime,
}

/// A word of the table; its CHECK lets no other in.
fn parsed<T>(word: Option<String>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, sqlx::Error> {
    word.map(|word| parse(&word).ok_or_else(|| sqlx::Error::Decode("a word of no meaning".into())))
        .transpose()
}

impl sqlx::FromRow<'_, PgRow> for Row {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            source_service: row.try_get("source_service")?,
            event_type: row.try_get("event_type")?,
            received_at: row.try_get("received_at")?,
            epoch: row.try_get("epoch")?,
            processed_at: row.try_get("processed_at")?,
            ticket: row.try_get("ticket")?,
            lease_token: row.try_get("lease_token")?,
            lease_until: row.try_get("lease_until")?,
            remaining: row.try_get("remaining")?,
            generation: row.try_get("generation")?,
            begun_at: row.try_get("begun_at")?,
            ended: parsed(row.try_get("ended")?, Ended::parse)?,
            failures: row.try_get("failures")?,
            lost_starts: row.try_get("lost_starts")?,
            cause: parsed(row.try_get("cause")?, Cause::parse)?,
            dead_lettered_at: row.try_get("dead_lettered_at")?,
            cycle: row.try_get("cycle")?,
            replay_id: row.try_get("replay_id")?,
            redelivered: row.try_get("redelivered")?,
            last_error: row.try_get("last_error")?,
            looked_at: row.try_get("looked_at")?,
        })
    }
}

/// The state that was decided on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct After {
    /// It begins.
    pub begins: bool,
    pub ticket: Option<i64>,
    /// Whose lease, for how long from now.
    pub lease: Option<(Uuid, Duration)>,
    pub generation: i64,
    pub ended: Option<Ended>,
    pub failures: i32,
    pub lost_starts: i32,
    pub cause: Option<Cause>,
    /// It was processed.
    pub processed: bool,
    /// A new series begins.
    pub anew: bool,
    pub cycle: i32,
    pub replay_id: Option<Uuid>,
    pub redelivered: bool,
    pub last_error: Option<String>,
}

/// What was written.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(super) struct Written {
    pub lease_until: Option<OffsetDateTime>,
    pub processed_at: Option<OffsetDateTime>,
    pub epoch: i64,
    /// Seconds from the start to the mark.
    pub took: Option<f64>,
}

/// Begins a message that nobody has begun. `None`: somebody has, or the ticket is not open.
pub(super) async fn begin(
    conn: &mut db::Conn,
    delivery: &Delivery,
) -> Result<Option<Option<OffsetDateTime>>, db::Error> {
    let (ticket, lease) = match delivery.binding {
        Binding::Ticket(ticket) => (Some(ticket), None),
        Binding::Lease { token, duration } => (None, Some((token, duration.as_secs_f64()))),
    };
    Ok(sqlx::query_scalar(BEGIN)
        .bind(delivery.key.envelope_id)
        .bind(&delivery.key.queue)
        .bind(&delivery.source_service)
        .bind(&delivery.event_type)
        .bind(ticket)
        .bind(lease.map(|(token, _)| token))
        .bind(lease.map(|(_, seconds)| seconds))
        .bind(delivery.redelivered)
        .bind(delivery.replay_id)
        .bind(delivery.cycle)
        .fetch_optional(conn)
        .await?)
}

pub(super) async fn look(conn: &mut db::Conn, key: &Key) -> Result<Option<Row>, db::Error> {
    Ok(sqlx::query_as(LOOK).bind(key.envelope_id).bind(&key.queue).fetch_optional(conn).await?)
}

/// A message's rows of these queues.
pub(super) async fn look_all(
    conn: &mut db::Conn,
    envelope_id: Uuid,
    queues: &[String],
) -> Result<Vec<(String, Row)>, db::Error> {
    let rows = sqlx::query(LOOK_ALL).bind(envelope_id).bind(queues).fetch_all(conn).await?;
    rows.iter()
        .map(|row| Ok((row.try_get("consumer_queue")?, Row::from_row(row)?)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(Into::into)
}

/// What is remembered of these messages, by queue: processed, and seen at all.
pub(super) async fn memory(
    conn: &mut db::Conn,
    messages: &[Uuid],
    queues: &[String],
) -> Result<Vec<(String, i64, i64)>, db::Error> {
    Ok(sqlx::query_as(MEMORY).bind(messages).bind(queues).fetch_all(conn).await?)
}

/// `None`: it is not as it was when it was looked at.
pub(super) async fn write(
    conn: &mut db::Conn,
    key: &Key,
    before: &Row,
    after: &After,
) -> Result<Option<Written>, db::Error> {
    Ok(sqlx::query_as(WRITE)
        .bind(key.envelope_id)
        .bind(&key.queue)
        .bind(before.received_at)
        .bind(before.processed_at)
        .bind(before.ticket)
        .bind(before.lease_token)
        .bind(before.lease_until)
        .bind(before.generation)
        .bind(before.ended.map(Ended::as_str))
        .bind(before.failures)
        .bind(before.lost_starts)
        .bind(before.cause.map(Cause::as_str))
        .bind(before.dead_lettered_at)
        .bind(before.cycle)
        .bind(before.replay_id)
        .bind(after.begins)
        .bind(after.ticket)
        .bind(after.lease.map(|(token, _)| token))
        .bind(after.lease.map(|(_, duration)| duration.as_secs_f64()))
        .bind(after.generation)
        .bind(after.ended.map(Ended::as_str))
        .bind(after.failures)
        .bind(after.lost_starts)
        .bind(after.cause.map(Cause::as_str))
        .bind(after.processed)
        .bind(after.anew)
        .bind(after.cycle)
        .bind(after.replay_id)
        .bind(after.redelivered)
        .bind(&after.last_error)
        .fetch_optional(conn)
        .await?)
}

/// Marks a series that is over as dead-lettered. `None`: it is not that series, or not over.
pub(super) async fn surfaced(
    conn: &mut db::Conn,
    key: &Key,
    epoch: i64,
) -> Result<Option<OffsetDateTime>, db::Error> {
    Ok(sqlx::query_scalar(SURFACED)
        .bind(key.envelope_id)
        .bind(&key.queue)
        .bind(epoch)
        .fetch_optional(conn)
        .await?)
}

pub(super) async fn flush(conn: &mut db::Conn) -> Result<(), db::Error> {
    sqlx::query(FLUSH).execute(conn).await?;
    Ok(())
}

pub(super) async fn undecided(
    conn: &mut db::Conn,
    after: Option<i64>,
    limit: i64,
) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(UNDECIDED).bind(after).bind(limit).fetch_all(conn).await?)
}

pub(super) async fn naming(conn: &mut db::Conn, tickets: &[i64]) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(NAMING).bind(tickets).fetch_all(conn).await?)
}

/// Tells how long each took, in seconds, and whether there may be more.
pub(super) async fn keep(conn: &mut db::Conn, committed: &[i64]) -> Result<(Vec<f64>, bool), db::Error> {
    if committed.is_empty() {
        return Ok((Vec::new(), false));
    }
    let took: Vec<f64> =
        sqlx::query_scalar(KEEP).bind(committed).bind(DECIDED_PER_TX).fetch_all(conn).await?;
    let more = i64::try_from(took.len()).is_ok_and(|rows| rows >= DECIDED_PER_TX);
    Ok((took, more))
}

/// Tells how many, and whether there may be more.
pub(super) async fn lose(
    conn: &mut db::Conn,
    rolled_back: &[i64],
    most: i32,
) -> Result<(u64, bool), db::Error> {
    if rolled_back.is_empty() {
        return Ok((0, false));
    }
    let rows = sqlx::query(LOSE)
        .bind(rolled_back)
        .bind(DECIDED_PER_TX)
        .bind(most)
        .execute(conn)
        .await?
        .rows_affected();
    Ok((rows, i64::try_from(rows).is_ok_and(|rows| rows >= DECIDED_PER_TX)))
}

/// Deletes at most `limit` rows that nobody has touched for longer than `kept`; tells how many. Never one that is begun.
///
/// # Errors
/// The database's.
pub async fn prune(conn: &mut db::Conn, kept: Duration, limit: i64) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(PRUNE).bind(kept.as_secs_f64()).bind(limit).fetch_one(conn).await?;
    Ok(gone.unsigned_abs())
}

/// What is under way: begun, and waiting to be dead-lettered.
pub(super) async fn depth(conn: &mut db::Conn, most: i64) -> Result<(i64, i64), db::Error> {
    Ok(sqlx::query_as(DEPTH).bind(most).fetch_one(conn).await?)
}
