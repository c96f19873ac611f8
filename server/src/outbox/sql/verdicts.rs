//! Rows whose tickets are undecided, and the verdicts written on them.

use super::*;
use crate::db;

pub(in crate::outbox) async fn undecided(
    conn: &mut db::Conn,
    after: Option<i64>,
    limit: i64,
) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(UNDECIDED).bind(after).bind(limit).fetch_all(conn).await?)
}

pub(in crate::outbox) async fn naming(conn: &mut db::Conn, tickets: &[i64]) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(NAMING).bind(tickets).fetch_all(conn).await?)
}

/// At most [`DECIDED_PER_TX`] rows; as many as that means that there may be more.
pub(in crate::outbox) async fn keep(conn: &mut db::Conn, committed: &[i64]) -> Result<u64, db::Error> {
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
pub(in crate::outbox) async fn discard_rolled_back(
    conn: &mut db::Conn,
    rolled_back: &[i64],
) -> Result<u64, db::Error> {
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
