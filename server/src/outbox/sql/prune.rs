//! What retention takes away.

use std::time::Duration;

use super::*;
use crate::db;

/// See [`crate::outbox::prune::published`].
pub(in crate::outbox) async fn prune(
    conn: &mut db::Conn,
    kept: Duration,
    limit: i64,
) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(PRUNE)
        .bind(kept.as_secs_f64())
        .bind(limit)
        .bind(tally_slot())
        .fetch_one(conn)
        .await?;
    Ok(gone.unsigned_abs())
}
