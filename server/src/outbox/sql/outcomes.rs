//! How claimed rows ended.

use uuid::Uuid;

use super::*;
use crate::db;

/// Parks claimed rows; as [`stamp`].
pub(in crate::outbox) async fn park(
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
pub(in crate::outbox) async fn park_unclaimable(
    conn: &mut db::Conn,
    id: Uuid,
    error: &str,
) -> Result<Option<Parking>, db::Error> {
    Ok(sqlx::query_as(PARK_UNCLAIMABLE).bind(id).bind(error).fetch_optional(conn).await?)
}

/// A row whose claim a settle has ended.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Ended {
    pub id: Uuid,
    pub key: Option<String>,
}

/// A row that was stamped.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct Stamped {
    pub id: Uuid,
    pub key: Option<String>,
    /// Its type, if others of it wait because no queue took them.
    pub waiting: Option<String>,
    pub event_type: String,
    /// Seconds since its commit was seen; absent where hand-written SQL has put in no time of this world.
    pub lag: Option<f64>,
}

/// Rows of these types need not wait for a queue any more, at most `most` a type; tells how many.
pub(in crate::outbox) async fn release(
    conn: &mut db::Conn,
    types: &[String],
    most: i64,
) -> Result<u64, db::Error> {
    Ok(sqlx::query(RELEASE).bind(types).bind(most).execute(conn).await?.rows_affected())
}

/// Gives each type that waits for a queue and has no probe a new one.
pub(in crate::outbox) async fn probe(conn: &mut db::Conn) -> Result<u64, db::Error> {
    Ok(sqlx::query(PROBE).execute(conn).await?.rows_affected())
}

/// The rows stamped; those missing are outdated by a newer claim, or [`skipped`].
pub(in crate::outbox) async fn stamp(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
    locked: bool,
) -> Result<Vec<Stamped>, db::Error> {
    Ok(sqlx::query_as(STAMP).bind(ids).bind(generations).bind(locked).fetch_all(conn).await?)
}

/// Which of these rows, that a settle did not write, are locked by somebody else.
pub(in crate::outbox) async fn skipped(
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
pub(in crate::outbox) async fn absolve(
    conn: &mut db::Conn,
    ids: &[Uuid],
    generations: &[i64],
) -> Result<(), db::Error> {
    sqlx::query(ABSOLVE).bind(ids).bind(generations).execute(conn).await?;
    Ok(())
}

/// Why rows failed and how long they wait, column by column.
#[derive(Debug, Default)]
pub(in crate::outbox) struct Failures {
    pub errors: Vec<String>,
    pub delays: Vec<f64>,
    pub unroutable: Vec<bool>,
}

/// As [`stamp`].
pub(in crate::outbox) async fn fail(
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
pub(in crate::outbox) async fn give_back(
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
