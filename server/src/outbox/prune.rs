//! What the outbox lets retention take away: published events, and the tombstones of holds.
//!
//! Guarantees: nothing goes that is not published and at rest (unresolved, held, parked, in flight and pending rows are kept for
//! ever); each row that goes is counted in its own transaction. Does not: decide when, or how much (retention does).
//! Design, sections 2 and 10.

use std::time::Duration;

use super::{holds, sql};
use crate::db;

/// Deletes at most `limit` published events that were staged longer ago than `kept`; tells how many.
///
/// # Errors
/// The database's.
pub async fn published(conn: &mut db::Conn, kept: Duration, limit: i64) -> Result<u64, db::Error> {
    sql::prune(conn, kept, limit).await
}

/// Deletes at most `limit` decisions about holds that were taken longer ago than `kept` and have no row left; tells how many.
///
/// # Errors
/// The database's.
pub async fn decisions(conn: &mut db::Conn, kept: Duration, limit: i64) -> Result<u64, db::Error> {
    holds::prune(conn, kept, limit).await
}
