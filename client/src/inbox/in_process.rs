//! The inbox without the server: the mark is a row of the handler's own transaction.
//!
//! Three transactions, one after the other, so that one connection is enough. The first counts the start, with a lease of seconds; the second is
//! the handler's: it marks the row before anything else, and has it locked from then on, which keeps everybody else away for
//! as long as it is open, also those that come through the server; the third, after a rollback, writes the error down. So the lease only
//! covers the way from the first to the second, and what a killed consumer left is taken over when it runs out, as a start that ended in
//! nothing.
//!
//! Guarantees: the effect and the mark are one commit; "duplicate" is said of a mark that is on disk. Needs `holdfast_consumer`
//! (`deploy/postgres/roles.sql`). Design: section 6.

use std::time::Duration;

use holdfast_proto::consumption::{self, LEASE_RETRY, MOST_FAILURES, MOST_LOST_STARTS, OPEN_RETRY};
use holdfast_proto::v1;
use sqlx::{PgConnection, PgPool, Postgres, Row as _, Transaction};
use uuid::Uuid;

use super::delivery::{Delivery, HandlerError};

const FIRST: &str = include_str!("queries/first.sql");
const BRIEF: &str = include_str!("queries/brief.sql");
const KNOWN: &str = include_str!("queries/known.sql");
const LOOK: &str = include_str!("queries/look.sql");
const AGAIN: &str = include_str!("queries/again.sql");
const OVER: &str = include_str!("queries/over.sql");
const MARK: &str = include_str!("queries/mark.sql");
const FAIL: &str = include_str!("queries/fail.sql");
const DURABLE: &str = include_str!("queries/durable.sql");
const FLUSH: &str = include_str!("queries/flush.sql");

/// What a role or database may have another default for is said.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// `lock_not_available`.
const LOCK_TIMEOUT: &str = "55P03";

/// From the count of a start to the lock of its handler's transaction. Some round trips, and a wait for a connection; and
/// how long a killed consumer's message waits.
const START_LEASE: Duration = Duration::from_secs(10);

/// What became of a delivery.
#[derive(Debug)]
#[must_use = "it says whether the delivery may be acked"]
pub enum Handled<T> {
    /// The handler ran, and its transaction is committed, on disk: ack.
    Done(T),
    /// It was processed before, and that is on disk: ack. The handler did not run.
    Duplicate,
    /// It is in somebody else's hands. The handler did not run; do not ack, come again after this time.
    InProgress(Duration),
    /// The handler failed and was rolled back, which is counted: do not ack, come again after a back-off.
    Retry(HandlerError),
    /// Its attempts are used up: [`super::Inbox::surface_dead_letter`], then ack. With the handler's error, if it was this delivery's.
    DeadLetter(v1::DeadLetter, Option<HandlerError>),
}

/// Why it is not known what became of a delivery, or nothing did. Do not ack: the message comes again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The database failed before or after the handler, or refuses: `holdfast migrate` has not run there, or the role may not
    /// (it needs membership in `holdfast_consumer`). Whatever the handler did is rolled back.
    #[error("the inbox could not be read or written: {0}")]
    Database(#[source] sqlx::Error),
    /// The COMMIT failed. If its reply was lost it may have gone through; the next delivery finds out.
    #[error("whether the handler's transaction was committed is not known: {0}")]
    Commit(#[source] sqlx::Error),
}

/// A start that was counted, by which its mark and its failure are fenced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) token: Uuid,
    pub(crate) generation: i64,
}

/// What the first transaction found.
#[derive(Debug)]
pub(crate) enum Started {
    Process(Start),
    Duplicate,
    InProgress(Duration),
    DeadLetter(v1::DeadLetter),
}

/// Runs `handler` for a delivery in a transaction of its own on a connection of `pool`, at most once with effect: the mark is in the
/// same commit. The server is not asked; it and other consumers of the queue see the same row.
///
/// The handler must neither commit nor roll back itself, and must return an error if one of its statements failed. It
/// has no time limit here, and a dropped future rolls back.
///
/// # Errors
/// [`HandleError`]; what the handler itself fails with is [`Handled::Retry`] or [`Handled::DeadLetter`].
///
/// ```no_run
/// use holdfast_client::inbox::{Delivery, Handled, HandleError, HandlerError, handle_in_tx};
///
/// /// Whether the delivery may be acked.
/// async fn paid(pool: &sqlx::PgPool, delivery: &Delivery, order: &str) -> Result<bool, HandleError> {
///     let handled = handle_in_tx(pool, delivery, async |tx| {
///         sqlx::query("UPDATE orders SET state = 'paid' WHERE id = $1").bind(order).execute(tx).await?;
///         Ok::<(), HandlerError>(())
///     });
///     match handled.await? {
///         Handled::Done(()) | Handled::Duplicate => Ok(true),
///         Handled::InProgress(_) | Handled::Retry(_) => Ok(false),
///         // After `Inbox::surface_dead_letter` it may be acked, too.
///         Handled::DeadLetter(..) => Ok(false),
///     }
/// }
/// ```
pub async fn handle_in_tx<T>(
    pool: &PgPool,
    delivery: &Delivery,
    handler: impl AsyncFnOnce(&mut PgConnection) -> Result<T, HandlerError>,
) -> Result<Handled<T>, HandleError> {
    let start = match begin(pool, delivery).await.map_err(HandleError::Database)? {
        Started::Process(start) => start,
        Started::Duplicate => return Ok(Handled::Duplicate),
        Started::InProgress(after) => return Ok(Handled::InProgress(after)),
        Started::DeadLetter(letter) => return Ok(Handled::DeadLetter(letter, None)),
    };
    let mut tx = pool.begin_with(BEGIN).await.map_err(HandleError::Database)?;
    if !mark(&mut tx, delivery, start).await.map_err(HandleError::Database)? {
        return Ok(Handled::InProgress(OPEN_RETRY));
    }
    let done = handler(&mut tx).await;
    let error = match done {
        Ok(done) => match durable(&mut tx).await {
            Ok(()) => {
                tx.commit().await.map_err(HandleError::Commit)?;
                return Ok(Handled::Done(done));
            }
            Err(error) => swallowed(error),
        },
        Err(error) => error,
    };
    // A connection that cannot roll back is closed, which does.
    let _ = tx.rollback().await;
    Ok(match fail(pool, delivery, start, &error).await.map_err(HandleError::Database)? {
        Some(letter) => Handled::DeadLetter(letter, Some(error)),
        None => Handled::Retry(error),
    })
}

/// The handler said Ok in a transaction that cannot commit: its COMMIT would be a rollback without an error.
pub(crate) fn swallowed(error: sqlx::Error) -> HandlerError {
    HandlerError::retry(format!("a statement of the handler had failed, and it returned no error: {error}"))
}

/// Sees to it that the commit waits for the disk. Fails where the transaction cannot commit.
pub(crate) async fn durable(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(DURABLE).execute(tx).await.map(|_| ())
}

/// The first transaction: counts the start, or tells why there is none.
pub(crate) async fn begin(pool: &PgPool, delivery: &Delivery) -> Result<Started, sqlx::Error> {
    let mut tx = pool.begin_with(BEGIN).await?;
    sqlx::query(BRIEF).execute(&mut *tx).await?;
    let started = match decide(&mut tx, delivery).await {
        Ok(started) => started,
        // Whoever has the row locked works on it.
        Err(error) if is_lock_timeout(&error) => return Ok(Started::InProgress(OPEN_RETRY)),
        Err(error) => return Err(error),
    };
    if matches!(started, Started::Duplicate | Started::DeadLetter(_)) {
        sqlx::query(FLUSH).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(started)
}

async fn decide(tx: &mut Transaction<'_, Postgres>, delivery: &Delivery) -> Result<Started, sqlx::Error> {
    let token = Uuid::now_v7();
    let known: bool = sqlx::query_scalar(KNOWN)
        .bind(delivery.envelope_id)
        .bind(&delivery.queue)
        .fetch_one(&mut **tx)
        .await?;
    if !known && first(tx, delivery, token).await? {
        return Ok(Started::Process(Start { token, generation: 1 }));
    }
    let looked =
        sqlx::query(LOOK).bind(delivery.envelope_id).bind(&delivery.queue).fetch_optional(&mut **tx).await?;
    let Some(row) = looked else { return Ok(Started::InProgress(OPEN_RETRY)) };
    if row.try_get("processed")? {
        return Ok(Started::Duplicate);
    }
    if row.try_get("ticketed")? {
        // The server asks the ticket, within a second.
        return Ok(Started::InProgress(OPEN_RETRY));
    }
    let (generation, epoch): (i64, i64) = (row.try_get("generation")?, row.try_get("epoch")?);
    let (mut failures, mut lost_starts): (i32, i32) = (row.try_get("failures")?, row.try_get("lost_starts")?);
    let (cycle, replay_id): (i32, Option<Uuid>) = (row.try_get("cycle")?, row.try_get("replay_id")?);
    let mut cause: Option<String> = row.try_get("cause")?;
    let newer = delivery.cycle > cycle || delivery.replay_id > replay_id;
    match row.try_get::<Option<f64>, _>("remaining")? {
        Some(left) if left > 0.0 => {
            let left = Duration::try_from_secs_f64(left).unwrap_or(LEASE_RETRY).min(LEASE_RETRY);
            return Ok(Started::InProgress(left));
        }
        Some(_) => {
            lost_starts = lost_starts.saturating_add(1);
            if lost_starts >= MOST_LOST_STARTS {
                if !newer {
                    let over = sqlx::query(OVER)
                        .bind(delivery.envelope_id)
                        .bind(&delivery.queue)
                        .bind(generation)
                        .bind(lost_starts);
                    if over.fetch_optional(&mut **tx).await?.is_none() {
                        return Ok(Started::InProgress(OPEN_RETRY));
                    }
                }
                cause = Some("lost_starts".to_owned());
            }
        }
        None => {}
    }
    if let Some(cause) = cause.as_deref().filter(|_| !newer) {
        return Ok(Started::DeadLetter(death(delivery, epoch, cause, row.try_get("surfaced")?)));
    }
    let anew = cause.is_some();
    if anew {
        (failures, lost_starts) = (0, 0);
    }
    let cycle_after =
        if anew { cycle.saturating_add(1).max(delivery.cycle) } else { cycle.max(delivery.cycle) };
    let again = sqlx::query(AGAIN)
        .bind(delivery.envelope_id)
        .bind(&delivery.queue)
        .bind(generation)
        .bind(token)
        .bind(START_LEASE.as_secs_f64())
        .bind(failures)
        .bind(lost_starts)
        .bind(cycle_after)
        .bind(replay_id.max(delivery.replay_id))
        .bind(anew)
        .bind(delivery.redelivered)
        .fetch_optional(&mut **tx)
        .await?;
    Ok(match again {
        Some(_) => Started::Process(Start { token, generation: generation.saturating_add(1) }),
        None => Started::InProgress(OPEN_RETRY),
    })
}

/// Begins what nobody has begun. False: somebody has, at the same moment.
async fn first(tx: &mut PgConnection, delivery: &Delivery, token: Uuid) -> Result<bool, sqlx::Error> {
    let first = sqlx::query(FIRST)
        .bind(delivery.envelope_id)
        .bind(&delivery.queue)
        .bind(&delivery.source_service)
        .bind(&delivery.event_type)
        .bind(token)
        .bind(START_LEASE.as_secs_f64())
        .bind(delivery.redelivered)
        .bind(delivery.replay_id)
        .bind(delivery.cycle)
        .fetch_optional(tx)
        .await?;
    Ok(first.is_some())
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCK_TIMEOUT)
}

/// In the handler's transaction, before the handler: marks and locks. False: somebody has begun again since.
pub(crate) async fn mark(
    tx: &mut PgConnection,
    delivery: &Delivery,
    start: Start,
) -> Result<bool, sqlx::Error> {
    let marked = sqlx::query(MARK)
        // Planned anew each time: the planner's settings in here are the handler's, and a plan that was made while the table was
        // small would read it whole ever after.
        .persistent(false)
        .bind(delivery.envelope_id)
        .bind(&delivery.queue)
        .bind(start.generation)
        .bind(start.token)
        .fetch_optional(tx)
        .await?;
    Ok(marked.is_some())
}

/// The third transaction: writes the error down. A dead letter, if the series is over.
pub(crate) async fn fail(
    pool: &PgPool,
    delivery: &Delivery,
    start: Start,
    error: &HandlerError,
) -> Result<Option<v1::DeadLetter>, sqlx::Error> {
    let (ended, counted, asked) = match error {
        HandlerError::Retry(_) => ("failed", 1, false),
        HandlerError::DeadLetterNow(_) => ("failed", 1, true),
        HandlerError::GiveBack(_) => ("given_back", 0, false),
    };
    let mut tx = pool.begin_with(BEGIN).await?;
    sqlx::query(BRIEF).execute(&mut *tx).await?;
    let failed = sqlx::query(FAIL)
        .bind(delivery.envelope_id)
        .bind(&delivery.queue)
        .bind(start.generation)
        .bind(start.token)
        .bind(ended)
        .bind(counted)
        .bind(asked)
        .bind(MOST_FAILURES)
        .bind(consumption::legible(&error.to_string()))
        .fetch_optional(&mut *tx)
        .await;
    let failed = match failed {
        Err(error) if is_lock_timeout(&error) => return Ok(None),
        failed => failed?,
    };
    tx.commit().await?;
    // No row, or one that is locked: somebody took over, and the error is his to meet.
    let Some(row) = failed else { return Ok(None) };
    let cause: Option<String> = row.try_get("cause")?;
    let epoch = row.try_get("epoch")?;
    Ok(cause.map(|cause| death(delivery, epoch, &cause, false)))
}

fn death(delivery: &Delivery, epoch: i64, cause: &str, surfaced: bool) -> v1::DeadLetter {
    let cause = match cause {
        "failures" => v1::DeadLetterCause::Failures,
        "lost_starts" => v1::DeadLetterCause::LostStarts,
        _ => v1::DeadLetterCause::Asked,
    };
    v1::DeadLetter {
        // As the server makes it, of the same row.
        token: consumption::token(delivery.envelope_id, &delivery.queue, epoch),
        cause: cause.into(),
        already_surfaced: surfaced,
    }
}
