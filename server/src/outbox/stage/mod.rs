//! Phase 1: writes a caller's events under its ticket and commits them before it answers. Phase 2 is the caller's own
//! COMMIT or ROLLBACK, and nothing else. Without a ticket (`StageNow`) there is no phase 2: the events are deliverable once
//! they are committed, and that commit is flushed.
//!
//! Guarantees: binds only while the ticket's lock is held by somebody, checked in the transaction that writes the rows; a
//! request is written whole or not at all; a repeated request is told `duplicate` (the table is in [`same_id`]); work that
//! was taken on is finished even if its caller is gone; a bad request never fails its neighbours. Needs only PostgreSQL.
//! Does not: validate (the edge did), or decide how the caller's transaction ended. Design, section 3.

mod alone;
mod group;
mod rows;
mod same_id;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::envelope::Valid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::db::{self, Begin, Pool};
use crate::metrics::{self, ServiceMetrics};

pub use group::Worker;

/// How staging works for a service.
#[derive(Debug, Clone)]
pub struct Options {
    /// CloudEvents `source` of the service's events.
    pub source: String,
    /// Most requests in one multi-row insert.
    pub max_group: usize,
    /// Most requests waiting or being written; the next one is told to come again.
    pub max_waiting: usize,
    /// Most bytes of events waiting or being written.
    pub max_bytes: usize,
    /// Most time for one transaction. Stages must end within one minute.
    pub limit: Duration,
}

impl Options {
    /// The defaults for a service.
    pub fn new(source: String) -> Self {
        Self {
            source,
            // A commit's cost is shared by what waits for it; beyond a few hundred the statement itself takes longer.
            max_group: 256,
            max_waiting: 1024,
            max_bytes: 64 * 1024 * 1024,
            limit: Duration::from_secs(20),
        }
    }
}

/// What became of one event of a request that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Written now.
    Staged,
    /// The same event was there already; nothing was written.
    Duplicate,
}

/// Why a request was refused; nothing was written, unless `Database` says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Nobody holds the ticket's lock in this service's database.
    #[error(
        "the ticket is not open in this service's database: its transaction or savepoint is over, or it is another database's"
    )]
    TicketNotOpen,
    /// The events are there under this very ticket, which rolled back.
    #[error("the ticket's transaction was rolled back, and its events with it")]
    TicketRolledBack,
    /// The id is taken by other content.
    #[error("event {0} exists with other content")]
    Conflict(Uuid),
    /// Another open transaction has staged the id.
    #[error("event {0} is staged by another transaction that is still open")]
    Contended(Uuid),
    /// Somebody else's open transaction holds a row or an id this request needs.
    #[error("another open transaction holds an id of this request")]
    Busy,
    /// Too much is waiting for this service's database.
    #[error("too many requests are waiting for this service's database")]
    Overloaded,
    /// The server stops.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The work ended without an answer: a fault of ours. The write may have happened.
    #[error("the staging worker gave no answer")]
    NoAnswer,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] db::Error),
}

pub(super) type Answer = Result<Vec<Outcome>, Refused>;

/// One request on its way.
pub(super) struct Request {
    /// `None`: bound to no transaction.
    ticket: Option<i64>,
    events: Arc<Vec<Valid>>,
    /// Its size on the wire.
    size: usize,
    answer: oneshot::Sender<Answer>,
    // Held until it is answered, wherever it waits meanwhile.
    _bytes: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Request {
    fn begin(&self) -> Begin {
        if self.ticket.is_some() { Begin::Stage } else { Begin::StageNow }
    }

    fn answer(self, answer: Answer) {
        // A caller that is gone does not undo its stage; its transaction will, if it ends with it.
        let _ = self.answer.send(answer);
    }
}

/// The way to a service's staging worker. Cheap to clone.
#[derive(Clone)]
pub struct Stager {
    queue: mpsc::Sender<Request>,
    bytes: Arc<Semaphore>,
    places: Arc<Semaphore>,
    max_bytes: usize,
    metrics: metrics::Stage,
}

/// Permits are KiB: a semaphore counts to 2^29 at least on every platform.
const PERMIT_BYTES: usize = 1024;

impl Stager {
    /// The handle, and the worker to spawn.
    pub fn new(pool: Pool, options: Options, metrics: ServiceMetrics) -> (Self, Worker) {
        let (queue, requests) = mpsc::channel(options.max_waiting);
        let stager = Self {
            queue,
            bytes: Arc::new(Semaphore::new(options.max_bytes / PERMIT_BYTES)),
            places: Arc::new(Semaphore::new(options.max_waiting)),
            max_bytes: options.max_bytes,
            metrics: metrics.stage.clone(),
        };
        (stager, Worker::new(pool, options, metrics, requests))
    }

    /// Stages `events` under `ticket`, or bound to nothing. `bytes`: the request's size on the wire.
    ///
    /// # Errors
    /// See [`Refused`]. Dropping the returned future does not stop the work.
    pub async fn stage(&self, ticket: Option<i64>, events: Vec<Valid>, bytes: usize) -> Answer {
        let begun = Instant::now();
        let answer = self.handed_over(ticket, events, bytes).await;
        self.metrics.answered(begun.elapsed());
        answer
    }

    async fn handed_over(&self, ticket: Option<i64>, events: Vec<Valid>, bytes: usize) -> Answer {
        let permits = bytes.min(self.max_bytes).div_ceil(PERMIT_BYTES).max(1);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let place = self.places.clone().try_acquire_owned().map_err(|_| self.overloaded())?;
        let held = self.bytes.clone().try_acquire_many_owned(permits).map_err(|_| self.overloaded())?;
        let (answer, answered) = oneshot::channel();
        let request =
            Request { ticket, events: Arc::new(events), size: bytes, answer, _bytes: held, _place: place };
        self.queue.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => self.overloaded(),
            mpsc::error::TrySendError::Closed(_) => Refused::ShuttingDown,
        })?;
        answered.await.unwrap_or(Err(Refused::NoAnswer))
    }

    fn overloaded(&self) -> Refused {
        self.metrics.refused("overloaded");
        Refused::Overloaded
    }
}
