//! The way without the server: one event inserted in the caller's own transaction (ADR-022 D1; design, section 3).
//!
//! Guarantees: judged and written by the same code as the server's; the event and the caller's rows commit together or
//! not at all; a refused event leaves the transaction usable.

use holdfast_proto::envelope::{self, Invalid, Limits};
use holdfast_proto::v1;
use sqlx::PgConnection;
use uuid::Uuid;

use super::tx;

const PUBLISH: &str = include_str!("queries/publish.sql");

/// Why an event was not inserted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The service's name breaks the rules of `[a-z][a-z0-9-]{0,62}`, or is reserved. Nothing was sent.
    #[error("service {0}")]
    Service(&'static str),
    /// The event breaks rules (all of them are listed, fields named `events[0].type`) or is over 1 MiB. Nothing was
    /// sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The connection is in autocommit: the event would not be bound to anything. Nothing was written.
    #[error("no transaction is open on this connection; begin one, and publish inside it")]
    NotInTransaction,
    /// An event of this id is there. Nothing was written, and **the transaction is still usable**. Whether it is the
    /// same event cannot be told: a publisher may not read the outbox.
    #[error("an event with id {0} exists already")]
    AlreadyExists(Uuid),
    /// SQLSTATE 25006. The transaction cannot go on; roll it back.
    #[error(
        "the transaction is read-only, or this is a standby (SQLSTATE 25006): publish in a READ WRITE transaction on the \
         primary"
    )]
    ReadOnly(#[source] sqlx::Error),
    /// The database failed, or refuses the insert: `holdfast migrate` has not run there, or the role may not insert (it
    /// needs membership in `holdfast_publisher`). The transaction cannot go on; roll it back.
    #[error("the event could not be inserted: {0}")]
    Database(#[source] sqlx::Error),
}

/// Inserts `event` into the outbox in the transaction that is open on `conn`; answers its id.
///
/// It is delivered if, and only if, that transaction (and the savepoint, if there is one) commits. Neither the server
/// nor a ticket is needed, only the right to insert. `service` must be the name that the server's configuration gives to
/// this database: it becomes the event's CloudEvents `source`. An event without a time gets the database's clock at the
/// insert; one without an id gets a version 7 one.
///
/// Where another open transaction has inserted the same id, the insert waits until that one ends. An event that a rolled
/// back transaction had *staged* under this id may still be in the way for a moment ([`PublishError::AlreadyExists`]).
///
/// One round trip; two more where the transaction was begun with a `BEGIN` of the caller's own.
///
/// # Errors
/// See [`PublishError`].
///
/// ```no_run
/// use holdfast_client::outbox::{event, publish_in_tx};
///
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE orders SET state = 'placed' WHERE id = 'o-1'").execute(&mut *tx).await?;
/// let placed = event("order.placed").subject("o-1").json_text(r#"{"total":"9.90"}"#).build();
/// publish_in_tx(&mut tx, "orders", &placed).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn publish_in_tx(
    conn: &mut PgConnection,
    service: &str,
    event: &v1::Event,
) -> Result<Uuid, PublishError> {
    if let Some(problem) = envelope::service_name_problem(service) {
        return Err(PublishError::Service(problem));
    }
    let valid = envelope::validate(std::slice::from_ref(event), None, &Limits::default())?;
    // One event in, one out; without it there would be nothing to insert.
    let Some(valid) = valid.into_iter().next() else { return Err(PublishError::Invalid(no_event())) };
    // The statement adds the time of an event that has none.
    let text = valid.envelope_text_for_insert(&envelope::source(service));
    let inserted = async {
        if !tx::is_open(conn).await? {
            return Ok(None);
        }
        let done = sqlx::query(PUBLISH)
            .bind(valid.id)
            .bind(valid.aggregate_id)
            .bind(&valid.event_type)
            .bind(&text)
            .bind(&valid.ordering_key)
            .bind(&valid.content_hash[..])
            .bind(valid.needs_time())
            .execute(conn)
            .await?;
        Ok(Some(done.rows_affected()))
    };
    match inserted.await {
        Ok(None) => Err(PublishError::NotInTransaction),
        Ok(Some(0)) => Err(PublishError::AlreadyExists(valid.id)),
        Ok(Some(_)) => Ok(valid.id),
        Err(error) if tx::is_read_only(&error) => Err(PublishError::ReadOnly(error)),
        Err(error) => Err(PublishError::Database(error)),
    }
}

fn no_event() -> Invalid {
    let mut violations = envelope::Violations::default();
    violations.push("events", "must have at least one event");
    Invalid::Violations(violations)
}
