//! Who has tickets open, as far as PostgreSQL tells.
//!
//! Guarantees: whether a ticket's lock is held, and by which process, is known to every role. Does not: know more of another
//! role's backend than a name for its client, unless the server's role may (`pg_read_all_stats`, or that other role).

use std::collections::HashMap;

use time::OffsetDateTime;

use super::sql;
use crate::db;

/// Who holds a ticket's lock.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Holder {
    ticket: i64,
    /// The backend's process; 0 for a prepared transaction.
    pub pid: i32,
    /// How its client calls itself.
    pub application_name: String,
    /// The role that it logged in as, or that prepared the transaction.
    pub login: String,
    /// The client's address, `local`, or nothing where that is not told.
    pub client_address: String,
    /// What it does; empty where that is not told.
    pub state: String,
    /// When its transaction began, where that is told.
    pub xact_start: Option<OffsetDateTime>,
    /// When its statement began, where that is told.
    pub query_start: Option<OffsetDateTime>,
    /// The prepared transaction's name; empty for a backend.
    pub gid: String,
    /// When it was prepared.
    pub prepared: Option<OffsetDateTime>,
}

/// The holders by ticket; who is not in it has none.
///
/// # Errors
/// The database's.
pub async fn of(conn: &mut db::Conn, tickets: &[i64]) -> Result<HashMap<i64, Holder>, db::Error> {
    if tickets.is_empty() {
        return Ok(HashMap::new());
    }
    let holders = sql::holders(conn, tickets).await?;
    Ok(holders.into_iter().map(|holder| (holder.ticket, holder)).collect())
}
