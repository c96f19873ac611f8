//! One attempt at one message, in each of the three modes: begun, run, committed or failed.
//!
//! Guarantees: [`Step::Ack`] only after the commit, or for what is processed already. A handler that is dropped in the middle takes its
//! connection with it: what it had asked for may still be under way there.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
#[cfg(feature = "sqlx")]
use holdfast_proto::consumption::OPEN_RETRY;
use holdfast_proto::v1::{self, ErrorReason};
#[cfg(feature = "sqlx")]
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Message;
#[cfg(feature = "sqlx")]
use super::settings::InTx;
use super::settings::{Elsewhere, Handling, Mode, Settings};
use crate::Error;
#[cfg(feature = "sqlx")]
use crate::inbox::in_process::{self, Started};
use crate::inbox::{Begun, HandlerError, Lease, Next};

/// What is to be done with the delivery now.
#[derive(Debug)]
pub(super) enum Step {
    /// It is processed, and that is on disk.
    Ack,
    /// Its attempts are used up.
    DeadLetter(v1::DeadLetter),
    /// Somebody else has it: begin again after this time.
    Busy(Duration),
    /// The handler failed, and that is written down: begin again after a back-off.
    Failed,
    /// What is needed is away, or nobody knows what became of it: begin again after a back-off.
    Trouble(String),
}

/// A lease outlives its handler's limit by so much: for what comes after it.
const LEASE_MARGIN: Duration = Duration::from_secs(30);
/// So often a completion is tried; each is several calls. After that the message is begun again.
const COMPLETIONS: u32 = 5;

/// How a handler ended that did not process its message.
struct Broken {
    error: HandlerError,
    /// It was dropped, or died: what it used is in an unknown state.
    #[cfg_attr(not(feature = "sqlx"), expect(dead_code, reason = "a lease has no connection"))]
    dropped: bool,
}

/// One attempt. `hard`: the grace time of a stop is over.
pub(super) async fn attempt(settings: &Settings, message: &Message, hard: &CancellationToken) -> Step {
    match &settings.mode {
        #[cfg(feature = "sqlx")]
        Mode::Ticket(pool, handler) => with_ticket(settings, pool, handler.as_ref(), message, hard).await,
        #[cfg(feature = "sqlx")]
        Mode::InProcess(pool, handler) => in_process(settings, pool, handler.as_ref(), message, hard).await,
        Mode::Lease(handler) => with_lease(settings, handler.as_ref(), message, hard).await,
    }
}

/// Runs a handler to its end, its time limit, its panic, or the end of a stop's grace.
async fn guarded(limit: Duration, hard: &CancellationToken, handling: Handling<'_>) -> Result<(), Broken> {
    let broken = |error| Err(Broken { error, dropped: true });
    tokio::select! {
        biased;
        done = AssertUnwindSafe(handling).catch_unwind() => match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Broken { error, dropped: false }),
            Err(_) => broken(HandlerError::retry("the handler panicked")),
        },
        () = hard.cancelled() => broken(HandlerError::give_back("the consumer stopped before the handler ended")),
        () = tokio::time::sleep(limit) => {
            broken(HandlerError::retry(format!("the handler did not end within {limit:?}")))
        }
    }
}

fn told(message: &Message, error: &HandlerError) {
    warn!(
        event.id = %message.id(), event.r#type = message.event_type(), queue = message.delivery.queue(), %error,
        "the handler failed"
    );
}

/// After FailConsume.
fn next(answer: Result<Next, Error>) -> Step {
    match answer {
        Ok(Next::Retry(_)) => Step::Failed,
        Ok(Next::DeadLetter(letter)) => Step::DeadLetter(letter),
        Ok(Next::Duplicate(_)) => Step::Ack,
        // Whatever it is, the next begin tells.
        Err(error) => Step::Trouble(format!("the failure could not be written down: {error}")),
    }
}

/// Ticket: begun in the transaction that the handler works in.
#[cfg(feature = "sqlx")]
async fn with_ticket(
    settings: &Settings,
    pool: &PgPool,
    handler: &InTx,
    message: &Message,
    hard: &CancellationToken,
) -> Step {
    let (inbox, delivery) = (&settings.inbox, &message.delivery);
    let mut conn = match pool.acquire().await {
        Ok(conn) => conn,
        Err(error) => return Step::Trouble(format!("no connection to the database: {error}")),
    };
    let mut tx = match conn.begin_with(in_process::BEGIN).await {
        Ok(tx) => tx,
        Err(error) => return Step::Trouble(format!("no transaction: {error}")),
    };
    let ticket = match crate::outbox::ticket(&mut tx).await {
        Ok(ticket) => ticket,
        Err(error) => return Step::Trouble(error.to_string()),
    };
    let start = match inbox.begin_in_tx(ticket, delivery).await {
        Ok(Begun::Process(start)) => start,
        Ok(other) => {
            let _ = tx.rollback().await;
            return match other {
                Begun::Duplicate(_) => Step::Ack,
                Begun::DeadLetter(letter) => Step::DeadLetter(letter),
                Begun::InProgress(after) => Step::Busy(after),
                Begun::Process(_) => Step::Busy(Duration::ZERO),
            };
        }
        Err(error) => {
            let _ = tx.rollback().await;
            return Step::Trouble(format!("the message could not be begun: {error}"));
        }
    };
    let handling = handler(&mut tx, message);
    let done = guarded(settings.handler_timeout, hard, handling).await;
    let (done, whole) = ended(done, tx).await;
    if !whole {
        conn.close_on_drop();
    }
    // Before anything else: whoever asks for its end must find it.
    drop(conn);
    let Err(broken) = done else { return Step::Ack };
    told(message, &broken);
    next(inbox.fail(delivery, start.generation, broken.kind(), &broken.to_string()).await)
}

/// In process: begun in a short transaction of its own, marked in the handler's.
#[cfg(feature = "sqlx")]
async fn in_process(
    settings: &Settings,
    pool: &PgPool,
    handler: &InTx,
    message: &Message,
    hard: &CancellationToken,
) -> Step {
    let delivery = &message.delivery;
    let start = match in_process::begin(pool, delivery).await {
        Ok(Started::Process(start)) => start,
        Ok(Started::Duplicate) => return Step::Ack,
        Ok(Started::InProgress(after)) => return Step::Busy(after),
        Ok(Started::DeadLetter(letter)) => return Step::DeadLetter(letter),
        Err(error) => return Step::Trouble(format!("the message could not be begun: {error}")),
    };
    let mut conn = match pool.acquire().await {
        Ok(conn) => conn,
        Err(error) => return Step::Trouble(format!("no connection to the database: {error}")),
    };
    let mut tx = match conn.begin_with(in_process::BEGIN).await {
        Ok(tx) => tx,
        Err(error) => return Step::Trouble(format!("no transaction: {error}")),
    };
    match in_process::mark(&mut tx, delivery, start).await {
        Ok(true) => {}
        Ok(false) => return Step::Busy(OPEN_RETRY),
        Err(error) => return Step::Trouble(format!("the message could not be marked: {error}")),
    }
    let handling = handler(&mut tx, message);
    let done = guarded(settings.handler_timeout, hard, handling).await;
    let (done, whole) = ended(done, tx).await;
    if !whole {
        conn.close_on_drop();
    }
    // Before anything else: whoever asks for its end must find it.
    drop(conn);
    let Err(broken) = done else { return Step::Ack };
    told(message, &broken);
    match in_process::fail(pool, delivery, start, &broken).await {
        Ok(Some(letter)) => Step::DeadLetter(letter),
        Ok(None) => Step::Failed,
        Err(error) => Step::Trouble(format!("the failure could not be written down: {error}")),
    }
}

/// Lease: the effect is wherever the handler has it.
async fn with_lease(
    settings: &Settings,
    handler: &Elsewhere,
    message: &Message,
    hard: &CancellationToken,
) -> Step {
    let (inbox, delivery) = (&settings.inbox, &message.delivery);
    let lease = Lease::new(settings.handler_timeout + LEASE_MARGIN);
    let start = match inbox.begin_with_lease(&lease, delivery).await {
        Ok(Begun::Process(start)) => start,
        Ok(Begun::Duplicate(_)) => return Step::Ack,
        Ok(Begun::InProgress(after)) => return Step::Busy(after),
        Ok(Begun::DeadLetter(letter)) => return Step::DeadLetter(letter),
        Err(error) => return Step::Trouble(format!("the message could not be begun: {error}")),
    };
    if let Err(Broken { error, .. }) = guarded(settings.handler_timeout, hard, handler(message)).await {
        told(message, &error);
        return next(inbox.fail(delivery, start.generation, error.kind(), &error.to_string()).await);
    }
    // It had its effect. To begin again would have it twice, so this tries for longer than anything else.
    let mut last = String::new();
    for _ in 0..COMPLETIONS {
        match inbox.complete(delivery, start.generation).await {
            Ok(_) => return Step::Ack,
            Err(error) if error.reason() == Some(ErrorReason::ConsumptionStale) => {
                return Step::Trouble(format!("processed, but another start came in between: {error}"));
            }
            Err(error) => last = error.to_string(),
        }
    }
    Step::Trouble(format!("processed, but that could not be written down: {last}"))
}

/// What the database refuses at COMMIT (a deferred constraint) is the handler's; a lost reply is nobody's. Either is only
/// counted if the transaction was not committed.
#[cfg(feature = "sqlx")]
fn commit_failed(error: sqlx::Error) -> HandlerError {
    match error.as_database_error() {
        Some(_) => HandlerError::retry(error),
        None => HandlerError::give_back(error),
    }
}

/// Ends the handler's transaction; what did not commit is an error, and rolled back. And whether its connection is as it was.
#[cfg(feature = "sqlx")]
async fn ended(
    done: Result<(), Broken>,
    mut tx: Transaction<'_, Postgres>,
) -> (Result<(), HandlerError>, bool) {
    match done {
        Ok(()) => match in_process::durable(&mut tx).await {
            Ok(()) => match tx.commit().await {
                Ok(()) => (Ok(()), true),
                Err(error) => (Err(commit_failed(error)), false),
            },
            Err(error) => {
                let whole = tx.rollback().await.is_ok();
                (Err(in_process::swallowed(error)), whole)
            }
        },
        // What it was about may still be under way: to roll back would wait for it.
        Err(Broken { error, dropped: true }) => (Err(error), false),
        Err(Broken { error, dropped: false }) => (Err(error), tx.rollback().await.is_ok()),
    }
}
