//! What happens in the caller's own transaction: it is asked whether it is open, and for a ticket; events are staged for
//! it; it is committed.
//!
//! Guarantees: outside of a transaction nothing is written and the answer is an error. Design: section 3.

use std::borrow::Borrow;

use holdfast_proto::v1;
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};

use super::{Outbox, Staged, Ticket};
use crate::Error;

const STAGE_TICKET: &str = include_str!("queries/stage_ticket.sql");
const ASSIGN_XID: &str = include_str!("queries/assign_xid.sql");
const HAS_XID: &str = include_str!("queries/has_xid.sql");

/// `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

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
        sqlx::query_scalar::<_, i64>(STAGE_TICKET).fetch_one(conn).await.map(Some)
    };
    match taken.await {
        Ok(Some(number)) => Ok(Ticket::from(number)),
        Ok(None) => Err(TicketError::NotInTransaction),
        Err(error) if is_read_only(&error) => Err(TicketError::ReadOnly(error)),
        Err(error) => Err(TicketError::Database(error)),
    }
}

/// Why [`Outbox::stage_in_tx`] failed. Roll the transaction back: whatever was written goes with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// No ticket could be taken; the server was not called.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The server refused, or could not be reached.
    #[error(transparent)]
    Call(#[from] Error),
}

impl StageError {
    /// Whether surely nothing was staged. See [`Error::is_certainly_not_applied`].
    #[must_use]
    pub fn is_certainly_not_applied(&self) -> bool {
        match self {
            Self::Ticket(_) => true,
            Self::Call(error) => error.is_certainly_not_applied(),
        }
    }
}

impl Outbox {
    /// Takes a ticket in the transaction that is open on `conn` and stages `events` for it: 1 to 1,000 events, all of
    /// them or none, in this order.
    ///
    /// They are delivered if, and only if, that transaction (and the savepoint, if there is one) commits. The server's
    /// answer means that they are in the database. Sent again by itself as [`Self::stage`] does.
    ///
    /// May be called several times in one transaction. [`Self::stage`] with the first call's ticket saves the round trip
    /// for another one, unless the first was taken in a savepoint that may be rolled back.
    ///
    /// # Errors
    /// [`StageError`]. Roll back then. Dropping the future is no error, but leaves open whether the events were staged;
    /// here, too, COMMIT or ROLLBACK decides.
    ///
    /// ```no_run
    /// use holdfast_client::outbox::{Outbox, event};
    ///
    /// # async fn example(pool: sqlx::PgPool, outbox: Outbox) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("UPDATE orders SET state = 'placed' WHERE id = 'o-1'").execute(&mut *tx).await?;
    /// let staged = outbox.stage_in_tx(&mut tx, [event("order.placed").subject("o-1")]).await?;
    /// outbox.commit_and_confirm(tx, [&staged]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn stage_in_tx<E: Into<v1::Event>>(
        &self,
        conn: &mut PgConnection,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, StageError> {
        let events: Vec<v1::Event> = events.into_iter().map(Into::into).collect();
        let ticket = ticket(conn).await?;
        Ok(self.stage(ticket, events).await?)
    }

    /// Commits `tx`, then sends the hint of [`Self::confirm_staged`] for everything that was staged in it, from tasks of
    /// their own, which end within 2 s. The caller does not wait for them, and their failure is never an error: the server
    /// finds out by itself.
    ///
    /// # Errors
    /// The commit's own. As ever with a commit, a lost connection leaves its outcome open: the events are delivered
    /// exactly if it went through. The hints are sent all the same.
    ///
    /// PostgreSQL answers the COMMIT of a transaction in which a statement has failed with a rollback and no error, and
    /// the driver reports Ok. Do not commit after an error.
    ///
    /// ```no_run
    /// use holdfast_client::outbox::{Outbox, event};
    ///
    /// # async fn example(pool: sqlx::PgPool, outbox: Outbox) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// let placed = outbox.stage_in_tx(&mut tx, [event("order.placed")]).await?;
    /// let billed = outbox.stage_in_tx(&mut tx, [event("invoice.issued")]).await?;
    /// outbox.commit_and_confirm(tx, [&placed, &billed]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn commit_and_confirm(
        &self,
        tx: Transaction<'_, Postgres>,
        staged: impl IntoIterator<Item = impl Borrow<Staged>>,
    ) -> Result<(), sqlx::Error> {
        let mut tickets: Vec<Ticket> = staged.into_iter().map(|staged| staged.borrow().ticket).collect();
        let committed = tx.commit().await;
        tickets.sort_unstable();
        tickets.dedup();
        for ticket in tickets {
            let outbox = self.clone();
            tokio::spawn(async move {
                // A lost hint costs the events a moment, nothing else.
                let _ = outbox.confirm_staged(ticket).await;
            });
        }
        committed
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
