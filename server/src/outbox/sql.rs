//! All SQL that names `holdfast.event_outbox` for staging, resolving and draining. One function a file of `queries/`.

use std::time::Duration;

use sqlx::Row as _;
use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    UNDECIDED = "undecided",
    NAMING = "naming",
    KEEP = "keep",
    DISCARD_ROLLED_BACK = "discard_rolled_back",
    STAGE_GROUP = "stage_group",
    INSERT = "insert",
    EXISTING = "existing",
    REPLACE_ROLLED_BACK = "replace_rolled_back",
    NOW = "now",
    FLUSH = "flush",
    WORK_WAITS = "work_waits",
    ANNOUNCES = "announces",
    LOCK = "lock",
    HEAL = "heal",
    CLOSE_LAPSED = "close_lapsed",
    HEAL_STRAYS = "heal_strays",
    SETTLE_ENDED = "settle_ended",
    PROMOTE = "promote",
    SEE = "see",
    CLAIM = "claim",
    CLOSE_CLAIMS = "close_claims",
    LONE = "lone",
    LONE_WAITS = "lone_waits",
    PARK = "park",
    PARK_UNCLAIMABLE = "park_unclaimable",
    STAMP = "stamp",
    RELEASE = "release",
    PROBE = "probe",
    FAIL = "fail",
    GIVE_BACK = "give_back",
    SKIPPED = "skipped",
    ABSOLVE = "absolve",
    STRANDED = "stranded",
}

/// Advisory lock of the drain, in the two-int form: our class, one key. Nonces use the bigint form.
const LOCK_CLASS: i32 = 0x484F_4C44;
const DRAIN_LOCK: i32 = 1;

/// The tally is spread so that transactions of several connections seldom wait for each other's row.
const TALLY_SLOTS: i32 = 16;

pub(super) fn tally_slot() -> i32 {
    rand::random_range(0..TALLY_SLOTS)
}

/// Rows decided in one transaction: it must stay far below its time limits.
pub(super) const DECIDED_PER_TX: u64 = 1_000;

// --- tickets --------------------------------------------------------------------------------------------------------

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

/// At most [`DECIDED_PER_TX`] rows; as many as that means that there may be more.
pub(super) async fn keep(conn: &mut db::Conn, committed: &[i64]) -> Result<u64, db::Error> {
    if committed.is_empty() {
        return Ok(0);
    }
    Ok(sqlx::query(KEEP)
        .bind(committed)
        .bind(i64::try_from(DECIDED_PER_TX).unwrap_or(i64::MAX))
        .execute(conn)
        .await?
        .rows_affected())
}

/// As [`keep`].
pub(super) async fn discard_rolled_back(conn: &mut db::Conn, rolled_back: &[i64]) -> Result<u64, db::Error> {
    if rolled_back.is_empty() {
        return Ok(0);
    }
    let gone: i64 = sqlx::query_scalar(DISCARD_ROLLED_BACK)
        .bind(rolled_back)
        .bind(i64::try_from(DECIDED_PER_TX).unwrap_or(i64::MAX))
        .bind(tally_slot())
        .fetch_one(conn)
        .await?;
    Ok(gone.unsigned_abs())
}

// --- staging --------------------------------------------------------------------------------------------------------

/// Rows to insert, column by column; all of one length.
#[derive(Debug, Default)]
pub(super) struct NewRows {
    pub ids: Vec<Uuid>,
    pub aggregate_ids: Vec<Option<Uuid>>,
    pub event_types: Vec<String>,
    pub envelopes: Vec<String>,
    pub ordering_keys: Vec<Option<String>>,
    pub content_hashes: Vec<Vec<u8>>,
    pub tickets: Vec<Option<i64>>,
    /// Whether the statement adds the time to the envelope.
    pub need_time: Vec<bool>,
}

/// How the insert of a group ended: all of it was written, or nothing.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct GroupInsert {
    stray: bool,
    /// Tickets whose lock nobody holds.
    pub unbound: Vec<i64>,
    /// Ids that were there already.
    pub taken: Vec<Uuid>,
    pub inserted: i64,
}

/// Inserts a group, unless a ticket or an id is against it. `durable`: whether its commit is flushed.
pub(super) async fn stage_group(
    lone: &mut db::Lone,
    rows: &NewRows,
    durable: bool,
) -> Result<GroupInsert, db::Error> {
    let mark = lone.session_mark();
    let answer: GroupInsert = sqlx::query_as(STAGE_GROUP)
        .bind(&rows.ids)
        .bind(&rows.aggregate_ids)
        .bind(&rows.event_types)
        .bind(&rows.envelopes)
        .bind(&rows.ordering_keys)
        .bind(&rows.content_hashes)
        .bind(&rows.tickets)
        .bind(&rows.need_time)
        .bind(if durable { "on" } else { "off" })
        .bind(mark)
        .fetch_one(lone.conn())
        .await?;
    if answer.stray { Err(db::Error::stray()) } else { Ok(answer) }
}

/// Inserts what is new; answers the ids inserted.
pub(super) async fn insert(conn: &mut db::Conn, rows: &NewRows) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(INSERT)
        .bind(&rows.ids)
        .bind(&rows.aggregate_ids)
        .bind(&rows.event_types)
        .bind(&rows.envelopes)
        .bind(&rows.ordering_keys)
        .bind(&rows.content_hashes)
        .bind(&rows.tickets)
        .fetch_all(conn)
        .await?)
}

/// A row that bears an id somebody wants to stage.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Existing {
    pub id: Uuid,
    pub ticket: Option<i64>,
    pub content_hash: Option<Vec<u8>>,
}

pub(super) async fn existing(conn: &mut db::Conn, ids: &[Uuid]) -> Result<Vec<Existing>, db::Error> {
    Ok(sqlx::query_as(EXISTING).bind(ids).fetch_all(conn).await?)
}

pub(super) async fn replace_rolled_back(
    conn: &mut db::Conn,
    ids: &[Uuid],
    tickets: &[i64],
) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(REPLACE_ROLLED_BACK)
        .bind(ids)
        .bind(tickets)
        .bind(tally_slot())
        .fetch_one(conn)
        .await?;
    Ok(gone.unsigned_abs())
}

pub(super) async fn now(conn: &mut db::Conn) -> Result<OffsetDateTime, db::Error> {
    Ok(sqlx::query_scalar(NOW).fetch_one(conn).await?)
}

/// Makes the commit of a transaction that has written nothing flush what it has seen.
pub(super) async fn flush(conn: &mut db::Conn) -> Result<(), db::Error> {
    let _: bool = sqlx::query_scalar(FLUSH).fetch_one(conn).await?;
    Ok(())
}

// --- draining -------------------------------------------------------------------------------------------------------

/// Which waiting rows hold the later ones of their key back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    pub unroutable: bool,
    pub parked: bool,
}

/// Whether new events announce themselves.
pub(super) async fn announces(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar::<_, Option<bool>>(ANNOUNCES).fetch_one(conn).await?.unwrap_or(false))
}

/// What there is to do.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Waiting {
    standby: bool,
    /// The first tickets that undecided rows name.
    pub tickets: Vec<i64>,
    /// Whether a pass would find something.
    pub work: bool,
}

/// A standby answers like a primary without work, for ever; so it is no answer.
pub(super) async fn work_waits(
    conn: &mut db::Conn,
    lease_seconds: f64,
    tickets: i64,
) -> Result<Waiting, db::Error> {
    let waiting: Waiting =
        sqlx::query_as(WORK_WAITS).bind(lease_seconds).bind(tickets).fetch_one(conn).await?;
    if waiting.standby { Err(db::Error::standby()) } else { Ok(waiting) }
}

/// [`try_drain_lock`] as a question that can be sent along with the BEGIN.
pub(super) fn drain_lock_question() -> String {
    LOCK.replace("$1", &LOCK_CLASS.to_string()).replace("$2", &DRAIN_LOCK.to_string())
}

/// Whether it was answered with the lock.
pub(super) fn drain_lock_answer(answers: &[db::Answer]) -> Result<bool, db::Error> {
    match answers.first().and_then(|rows| rows.first()) {
        Some(row) => Ok(row.try_get(0)?),
        None => Ok(false),
    }
}

pub(super) async fn try_drain_lock(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar(LOCK).bind(LOCK_CLASS).bind(DRAIN_LOCK).fetch_one(conn).await?)
}

/// A row that was healed or parked.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Parking {
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
pub(super) async fn lock_patiently(conn: &mut db::Conn) -> Result<bool, db::Error> {
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

pub(super) async fn heal(conn: &mut db::Conn, lease_seconds: f64) -> Result<Vec<Parking>, db::Error> {
    Ok(sqlx::query_as(HEAL).bind(lease_seconds).fetch_all(conn).await?)
}

/// Removes the batches that [`heal`] has emptied.
pub(super) async fn close_lapsed(conn: &mut db::Conn, lease_seconds: f64) -> Result<(), db::Error> {
    sqlx::query(CLOSE_LAPSED).bind(lease_seconds).execute(conn).await?;
    Ok(())
}

/// Keys of the strays healed; a keyless row counts as `None`.
pub(super) async fn heal_strays(
    conn: &mut db::Conn,
    lease_seconds: f64,
) -> Result<Vec<Option<String>>, db::Error> {
    Ok(sqlx::query_scalar(HEAL_STRAYS).bind(lease_seconds).fetch_all(conn).await?)
}

pub(super) async fn settle_ended(conn: &mut db::Conn, limit: i64) -> Result<Vec<Option<String>>, db::Error> {
    Ok(sqlx::query_scalar(SETTLE_ENDED).bind(limit).fetch_all(conn).await?)
}

pub(super) async fn promote(
    conn: &mut db::Conn,
    keys: &[String],
    per_key: i64,
    blocks: Blocks,
) -> Result<u64, db::Error> {
    if keys.is_empty() {
        return Ok(0);
    }
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
pub(super) const STRANDED_AT_MOST: usize = 1_000;

pub(super) async fn stranded(conn: &mut db::Conn, blocks: Blocks) -> Result<Vec<String>, db::Error> {
    Ok(sqlx::query_scalar(STRANDED).bind(blocks.unroutable).bind(blocks.parked).fetch_all(conn).await?)
}

/// One line of `see.sql`: a row that may be taken, or a free ticket that must be decided first.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Seen {
    pub id: Option<Uuid>,
    pub seq: Option<i64>,
    pub keyed: Option<bool>,
    pub size: Option<i32>,
    pub compressed: Option<bool>,
    pub free_ticket: Option<i64>,
}

pub(super) async fn see(
    conn: &mut db::Conn,
    committed: &[i64],
    limit: i64,
    max_free: i64,
) -> Result<Vec<Seen>, db::Error> {
    Ok(sqlx::query_as(SEE).bind(committed).bind(limit).bind(max_free).fetch_all(conn).await?)
}

/// One line of `claim.sql`.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Claimed {
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

pub(super) async fn claim(
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
pub(super) fn close_claims(batches: &[i64]) -> String {
    let list = batches.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    CLOSE_CLAIMS.replace("$1::bigint[]", &format!("'{{{list}}}'::bigint[]"))
}

/// The next row that must be claimed alone.
pub(super) async fn lone(conn: &mut db::Conn) -> Result<Option<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(LONE).fetch_optional(conn).await?)
}

pub(super) async fn lone_waits(conn: &mut db::Conn) -> Result<bool, db::Error> {
    Ok(sqlx::query_scalar(LONE_WAITS).fetch_one(conn).await?)
}

/// Parks claimed rows; as [`stamp`].
pub(super) async fn park(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    reasons: &[String],
    locked: bool,
    claimed_by: &str,
) -> Result<Vec<Parking>, db::Error> {
    Ok(sqlx::query_as(PARK)
        .bind(ids)
        .bind(generations)
        .bind(reasons)
        .bind(locked)
        .bind(claimed_by)
        .fetch_all(conn)
        .await?)
}

/// Parks a row that the database cannot hand over; `None` if it was not there to be parked.
pub(super) async fn park_unclaimable(
    conn: &mut db::Conn,
    id: Uuid,
    error: &str,
) -> Result<Option<Parking>, db::Error> {
    Ok(sqlx::query_as(PARK_UNCLAIMABLE).bind(id).bind(error).fetch_optional(conn).await?)
}

/// A row whose claim a settle has ended.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Ended {
    pub id: Uuid,
    pub key: Option<String>,
}

/// A row that was stamped.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Stamped {
    pub id: Uuid,
    pub key: Option<String>,
    /// Its type, if others of it wait because no queue took them.
    pub waiting: Option<String>,
}

/// Rows of these types need not wait for a queue any more, at most `most` a type; tells how many.
pub(super) async fn release(conn: &mut db::Conn, types: &[String], most: i64) -> Result<u64, db::Error> {
    Ok(sqlx::query(RELEASE).bind(types).bind(most).execute(conn).await?.rows_affected())
}

/// Gives each type that waits for a queue and has no probe a new one.
pub(super) async fn probe(conn: &mut db::Conn) -> Result<u64, db::Error> {
    Ok(sqlx::query(PROBE).execute(conn).await?.rows_affected())
}

/// The rows stamped; those missing are outdated by a newer claim, or [`skipped`].
pub(super) async fn stamp(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    locked: bool,
) -> Result<Vec<Stamped>, db::Error> {
    Ok(sqlx::query_as(STAMP).bind(ids).bind(generations).bind(locked).fetch_all(conn).await?)
}

/// Which of these rows, that a settle did not write, are locked by somebody else.
pub(super) async fn skipped(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    claimed: bool,
    claimed_by: &str,
) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(SKIPPED)
        .bind(ids)
        .bind(generations)
        .bind(claimed)
        .bind(claimed_by)
        .fetch_all(conn)
        .await?)
}

/// Takes back what healing has counted against rows whose outcome came late.
pub(super) async fn absolve(conn: &mut db::Conn, ids: &[Uuid], generations: &[i64]) -> Result<(), db::Error> {
    sqlx::query(ABSOLVE).bind(ids).bind(generations).execute(conn).await?;
    Ok(())
}

/// Why rows failed and how long they wait, column by column.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub errors: Vec<String>,
    pub delays: Vec<f64>,
    pub unroutable: Vec<bool>,
}

/// As [`stamp`].
pub(super) async fn fail(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    failures: &Failures,
    locked: bool,
    claimed_by: &str,
) -> Result<Vec<Ended>, db::Error> {
    Ok(sqlx::query_as(FAIL)
        .bind(ids)
        .bind(generations)
        .bind(&failures.errors)
        .bind(&failures.delays)
        .bind(&failures.unroutable)
        .bind(locked)
        .bind(claimed_by)
        .fetch_all(conn)
        .await?)
}

/// As [`stamp`].
pub(super) async fn give_back(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    locked: bool,
    claimed_by: &str,
) -> Result<Vec<Ended>, db::Error> {
    Ok(sqlx::query_as(GIVE_BACK)
        .bind(ids)
        .bind(generations)
        .bind(locked)
        .bind(claimed_by)
        .fetch_all(conn)
        .await?)
}
