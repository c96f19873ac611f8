//! What the caller's own transaction is asked: whether it is open, and for a ticket.
//!
//! Guarantees: outside of a transaction nothing is written and the answer is an error. Design: section 3.

use std::fmt;

use sqlx::{Connection as _, PgConnection};

const STAGE_TICKET: &str = include_str!("queries/stage_ticket.sql");
const ASSIGN_XID: &str = include_str!("queries/assign_xid.sql");
const HAS_XID: &str = include_str!("queries/has_xid.sql");

/// `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

/// The name of one open transaction, or of the savepoint it was taken in: a random 64-bit number of either sign.
///
/// [`ticket`] takes one. It names nothing once its transaction is over, and nothing in another database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(i64);

impl Ticket {
    /// The number, as `StageInTxRequest.ticket` carries it.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

/// For a ticket that was taken elsewhere, with `SELECT holdfast.stage_ticket()`. Never make a number up: the server
/// refuses one whose lock nobody holds.
impl From<i64> for Ticket {
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl From<Ticket> for i64 {
    fn from(ticket: Ticket) -> Self {
        ticket.0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why no ticket could be taken. Nothing was staged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The connection is in autocommit: the ticket would be over with the statement that took it.
    #[error("no transaction is open on this connection; begin one, and stage inside it")]
    NotInTransaction,
    /// SQLSTATE 25006. The transaction cannot go on; roll it back.
    #[error(
        "the transaction is read-only, or this is a standby (SQLSTATE 25006): take tickets in a READ WRITE transaction \
         on the primary"
    )]
    ReadOnly(#[source] sqlx::Error),
    /// The database failed, or refuses the call: `holdfast migrate` has not run there, or the role may not execute
    /// `holdfast.stage_ticket()` (it needs membership in `holdfast_caller`). The transaction cannot go on; roll it back.
    #[error("the ticket could not be taken: {0}")]
    Database(#[source] sqlx::Error),
}

/// Takes a ticket for the transaction (or savepoint) that is open on `conn`: `SELECT holdfast.stage_ticket()`.
///
/// Taken inside a savepoint it follows that savepoint. Each call is a new ticket; one ticket serves as many requests as
/// its transaction lives for. Costs one round trip; two more where the transaction was begun with a `BEGIN` of the
/// caller's own, which the driver does not see.
///
/// # Errors
/// See [`TicketError`]: no transaction, a read-only one, or the database's own.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// let ticket = holdfast_client::outbox::ticket(&mut tx).await?;
/// # Ok(()) }
/// ```
pub async fn ticket(conn: &mut PgConnection) -> Result<Ticket, TicketError> {
    let taken = async {
        if !is_open(conn).await? {
            return Ok(None);
        }
        sqlx::query_scalar(STAGE_TICKET).fetch_one(conn).await.map(Some)
    };
    match taken.await {
        Ok(Some(number)) => Ok(Ticket(number)),
        Ok(None) => Err(TicketError::NotInTransaction),
        Err(error) if is_read_only(&error) => Err(TicketError::ReadOnly(error)),
        Err(error) => Err(TicketError::Database(error)),
    }
}

/// Whether a transaction is open on `conn`.
///
/// The driver knows of those it began itself. For the rest the database is asked, exactly: a transaction id that one
/// statement has assigned is still there in the next one only if both ran in one transaction. (Comparing `now()` with
/// `statement_timestamp()` does not work: in the extended protocol they differ in autocommit, too.)
pub(super) async fn is_open(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    if conn.is_in_transaction() {
        return Ok(true);
    }
    let _: String = sqlx::query_scalar(ASSIGN_XID).fetch_one(&mut *conn).await?;
    sqlx::query_scalar(HAS_XID).fetch_one(conn).await
}

/// Whether the database refuses writes.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == READ_ONLY)
}
