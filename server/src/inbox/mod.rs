//! The inbox: messages that take effect once, however often they are delivered.
//!
//! Guarantees (design, section 15): 11. a consumer's ticketed effect happens once, under redelivery, lost replies and crashes. A
//! message is called a duplicate only after its mark is on disk, and with it the effect: an ack is built on it. Each end of a
//! start is counted once, and a series of attempts is over after five errors or three starts that ended in nothing. Does not: see a
//! message's body before it is a dead letter, or ack anything. Design, section 6.
//!
//! ```text
//!                   BeginConsume                     its COMMIT, seen by the resolver or the next call (ticket)
//!  (no row) ──────────▶ begun ──────────────────────────────────────────────────────────────────▶ processed, for good
//!                       ▲   │  │                     CompleteConsume (lease)
//!          BeginConsume │   │  └─ ROLLBACK, death, lease ran out ──▶ lost_starts + 1 ─┐
//!                       │   └──── FailConsume ──▶ failures + 1, or given back         │
//!                       └───────────────────────── waiting ◀───────────────────────────┤ fewer than the cap
//!                       ▲                                                             ▼
//!                       └── newer replay or cycle: a new series ── to be dead-lettered ──▶ dead-lettered
//!                                                   ▲                  SurfaceDeadLetter      │
//!                                                   └─────────────────────────────────────────┘
//! ```

mod begin;
mod decide;
mod depth;
mod end;
mod letter;
mod resolvable;
mod sql;
mod surface;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::broker::DeadLetters;
use crate::db::{self, Pool};
use crate::metrics::ServiceMetrics;

pub use depth::Depth;
pub use letter::Letter;
pub use resolvable::InboxRows;
pub use sql::{QUERIES, Row, prune};
pub use token::Token;

/// What is over is looked at anew at most so often within one call.
const ROUNDS: u32 = 3;
/// Most time for one unit of database work, waiting for a connection included.
const LIMIT: Duration = Duration::from_secs(8);

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The message.
    pub envelope_id: Uuid,
    /// The queue it was delivered from.
    pub queue: String,
}

/// What a start is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// An open transaction.
    Ticket(i64),
    /// A time.
    Lease {
        /// Its holder's, by which he is known again.
        token: Uuid,
        /// How long.
        duration: Duration,
    },
}

/// A delivery.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Which message, from which queue.
    pub key: Key,
    /// Who sent it.
    pub source_service: String,
    /// Its type.
    pub event_type: String,
    /// What its effect is bound to.
    pub binding: Binding,
    /// What the broker said.
    pub redelivered: bool,
    /// The replay that sent it.
    pub replay_id: Option<Uuid>,
    /// How often it was put back from the dead.
    pub cycle: i32,
}

/// Why a series of attempts is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Too many errors.
    Failures,
    /// Too many starts that ended in nothing.
    LostStarts,
    /// Somebody said so.
    Asked,
}

impl Cause {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::LostStarts => "lost_starts",
            Self::Asked => "asked",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Failures, Self::LostStarts, Self::Asked].into_iter().find(|cause| cause.as_str() == word)
    }
}

/// How a start ended that was not the processed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an error.
    Failed,
    /// Without anybody's fault.
    GivenBack,
    /// Its transaction was rolled back, without a word so far.
    RolledBack,
    /// Its lease ran out, without a word so far.
    Lapsed,
}

impl Ended {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::GivenBack => "given_back",
            Self::RolledBack => "rolled_back",
            Self::Lapsed => "lapsed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Failed, Self::GivenBack, Self::RolledBack, Self::Lapsed]
            .into_iter()
            .find(|ended| ended.as_str() == word)
    }
}

/// A death, to be surfaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// Its name.
    pub token: Token,
    /// What it died of.
    pub cause: Cause,
    /// It was surfaced before.
    pub surfaced: bool,
}

/// What to do with a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Run the handler.
    Process {
        /// Which attempt of its series.
        attempt: i32,
        /// Which start of all.
        generation: i64,
        /// With a lease: until when.
        lease_until: Option<OffsetDateTime>,
    },
    /// It was processed, and that is on disk.
    Duplicate(OffsetDateTime),
    /// Somebody else has it; come again.
    InProgress(Duration),
    /// Its attempts are used up.
    DeadLetter(Death),
}

/// What is on disk after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// It had been marked before.
    pub before: bool,
    /// When it was marked.
    pub at: OffsetDateTime,
}

/// How a handler failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailKind {
    /// To be tried again.
    Error,
    /// Not to be tried again.
    DeadLetter,
    /// Not the message's fault.
    GivenBack,
}

/// What comes after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, after so many errors.
    Retry(i32),
    /// None: its attempts are used up.
    DeadLetter(Death),
    /// It is processed after all.
    Duplicate(OffsetDateTime),
}

/// A letter's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surfaced {
    /// It had gone before.
    pub before: bool,
    /// When that was marked.
    pub at: OffsetDateTime,
}

/// Why nothing came of a call.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The queue is not the service's.
    #[error("{0:?} is not one of the service's consumer_queues")]
    Queue(String),
    /// Nobody holds the ticket's lock.
    #[error("no open transaction of this database has this ticket")]
    TicketNotOpen,
    /// The message was begun with it, and it was rolled back.
    #[error("its transaction was rolled back")]
    TicketRolledBack,
    /// Others were faster, again and again.
    #[error("others change the state of this message all the time")]
    Contended,
    /// The start's transaction has not ended.
    #[error("the transaction that it was begun in is still open: end it first")]
    Open,
    /// The start is over.
    #[error("this start is over: it ended otherwise, or somebody has begun again since")]
    Stale,
    /// There is no row.
    #[error("nobody has begun this message for this queue, or its memory was pruned")]
    NotFound,
    /// The letter's series is not the present one, or is not over.
    #[error("the message is not to be dead-lettered under this token")]
    StaleLetter {
        /// It had gone out by then.
        published: bool,
    },
    /// No queue took it.
    #[error("no queue is bound to exchange {exchange:?} for {routing_key:?}")]
    Unroutable {
        /// Where it was sent.
        exchange: String,
        /// With which key.
        routing_key: String,
    },
    /// The broker has it or not.
    #[error("{reason}")]
    Broker {
        /// In words.
        reason: &'static str,
        /// It may have it.
        unknown: bool,
    },
    /// The broker's objects are not as they must be.
    #[error("{0}")]
    Topology(String),
    /// Too large for a message.
    #[error("{field} is over {limit} bytes")]
    TooLarge {
        /// What.
        field: &'static str,
        /// How large.
        actual: usize,
        /// The most.
        limit: usize,
    },
    /// The database's.
    #[error(transparent)]
    Database(#[from] db::Error),
}

/// One service's inbox. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pool: Pool,
    metrics: ServiceMetrics,
    queues: Arc<[String]>,
    letters: Arc<DeadLetters>,
    /// Set by each start under a ticket: the resolver looks soon.
    stirred: Arc<AtomicBool>,
}

impl Desk {
    /// A desk, and the table's part in the resolver's work. `queues`: those that the service consumes from.
    pub fn new(
        pool: Pool,
        metrics: ServiceMetrics,
        queues: Vec<String>,
        letters: Arc<DeadLetters>,
    ) -> (Self, InboxRows) {
        // Whatever was begun before a restart.
        let stirred = Arc::new(AtomicBool::new(true));
        let rows = InboxRows::new(metrics.inbox.clone(), stirred.clone());
        (Self { pool, metrics, queues: queues.into(), letters, stirred }, rows)
    }

    /// Whether the queue is one of the service's.
    ///
    /// # Errors
    /// It is not.
    pub fn knows(&self, queue: &str) -> Result<(), Refused> {
        if self.queues.iter().any(|known| known == queue) {
            Ok(())
        } else {
            Err(Refused::Queue(queue.to_owned()))
        }
    }

    /// The row of a message, if there is one. Changes nothing and asks no ticket.
    ///
    /// # Errors
    /// The database's.
    pub async fn look(&self, key: &Key) -> Result<Option<Row>, db::Error> {
        db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let row = sql::look(read.conn(), key).await;
            read.finish(row).await
        })
        .await
    }

    /// A message in each of the service's queues, ascending by queue; `None` where nobody has begun it. Changes nothing and asks no ticket.
    ///
    /// # Errors
    /// The database's.
    pub async fn everywhere(&self, envelope_id: Uuid) -> Result<Vec<(String, Option<Row>)>, db::Error> {
        let mut read = self.pool.read().await?;
        let rows = sql::look_all(read.conn(), envelope_id, &self.queues).await;
        let mut rows: BTreeMap<String, Row> = read.finish(rows).await?.into_iter().collect();
        Ok(self.queues().into_iter().map(|queue| (queue.clone(), rows.remove(&queue))).collect())
    }

    /// What each of the service's queues remembers of these messages, ascending by queue: processed, and seen at all.
    ///
    /// # Errors
    /// The database's.
    pub async fn memory(&self, messages: &[Uuid]) -> Result<Vec<(String, i64, i64)>, db::Error> {
        let mut read = self.pool.read().await?;
        let rows = sql::memory(read.conn(), messages, &self.queues).await;
        let rows = read.finish(rows).await?;
        let of = |queue: String| {
            let row = rows.iter().find(|(of, ..)| *of == queue);
            row.map_or((queue, 0, 0), Clone::clone)
        };
        Ok(self.queues().into_iter().map(of).collect())
    }

    /// The queues that the service consumes from, ascending.
    pub fn queues(&self) -> Vec<String> {
        self.queues.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn stir(&self) {
        self.stirred.store(true, Ordering::Release);
    }
}

/// What one round in a transaction came to.
enum Round<T> {
    Done(T),
    Refused(Refused),
    /// Somebody was faster.
    Raced,
}

/// Does rounds until one is not raced. `busy`: what to say where a lock was waited for in vain.
async fn rounds<T, F>(
    mut round: impl FnMut() -> F,
    busy: impl Fn() -> Result<T, Refused>,
) -> Result<T, Refused>
where
    F: Future<Output = Result<Round<T>, db::Error>>,
{
    for _ in 0..ROUNDS {
        match db::within(LIMIT, round()).await {
            Ok(Round::Done(done)) => return Ok(done),
            Ok(Round::Refused(refused)) => return Err(refused),
            Ok(Round::Raced) => {}
            // A deadlock's victim comes again at once; a lock time-out has waited long enough.
            Err(error) if error.kind == db::Kind::Contended && error.sqlstate.as_deref() != Some("55P03") => {
            }
            Err(error) if error.kind == db::Kind::Contended => return busy(),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refused::Contended)
}
