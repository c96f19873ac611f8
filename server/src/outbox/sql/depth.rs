//! What lies in the outbox.

use super::*;
use crate::db;

/// One line of the measurement.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(in crate::outbox) struct Measured {
    /// `state`, `keys`, `index` or `table`.
    pub kind: String,
    pub name: String,
    pub rows: i64,
    /// A state's oldest age in seconds, or a table's bytes.
    pub size: i64,
    /// Rows of a state that should have been published long ago.
    pub late: i64,
}

/// The states of the oldest `most` unpublished rows, at most `keys` keys with rows set aside, and the catalogue's estimates.
pub(in crate::outbox) async fn depth(
    conn: &mut db::Conn,
    most: i64,
    keys: i64,
) -> Result<Vec<Measured>, db::Error> {
    Ok(sqlx::query_as(DEPTH).bind(most).bind(keys).fetch_all(conn).await?)
}
