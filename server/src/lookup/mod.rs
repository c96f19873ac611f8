//! "Where is my event": its row in the outbox, read whole, and its one state by precedence; and what became of it at its consumers.
//!
//! Guarantees: reads only; a consumer's database that is away or slow delays the answer by two seconds at most, and fails nothing.
//! Does not: judge who may see which consumer's rows, which the front proves first. Design, sections 12, 13 and 15.2.

use std::borrow::Cow;
use std::time::Duration;

use futures::future::join_all;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::{self, Pool};
use crate::inbox;
use crate::outbox::pause;

/// Most time for a look-up, waiting for a connection included.
const LIMIT: Duration = Duration::from_secs(8);

/// Most time for one consumer's database: it adds to an answer that is there already.
const CONSUMER_LIMIT: Duration = Duration::from_secs(2);

const EVENT: &str = include_str!("queries/event.sql");
const BEHIND: &str = include_str!("queries/behind.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[("behind", BEHIND), ("event", EVENT)];

/// The states a row can be in; the first that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its transaction is not known to have ended.
    Unresolved,
    /// Kept back until its operation is decided.
    Held,
    /// Set aside for an operator.
    Parked,
    /// A publisher has it in hand.
    InFlight,
    /// To be published.
    Pending,
    /// Confirmed and routed.
    Published,
}

/// One event's row.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Event {
    /// The event's id.
    pub id: Uuid,
    /// The event's type.
    pub event_type: String,
    /// The ordering key in force.
    pub ordering_key: Option<String>,
    /// Place in the outbox.
    pub seq: i64,
    /// Failed attempts.
    pub attempts: i32,
    /// What the last one died of.
    pub last_error: Option<String>,
    /// When it was staged.
    pub created_at: Option<OffsetDateTime>,
    /// When its commit was seen.
    pub resolved_at: Option<OffsetDateTime>,
    /// When the broker confirmed it.
    pub published_at: Option<OffsetDateTime>,
    /// Not tried before.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it was claimed.
    pub claimed_at: Option<OffsetDateTime>,
    operation_id: Option<String>,
    generation: Option<i64>,
    unresolved: bool,
    held: bool,
    parked: bool,
    published: bool,
    in_flight: bool,
    backing_off: Option<bool>,
    unroutable: bool,
    set_aside: bool,
    #[sqlx(skip)]
    paused: bool,
    #[sqlx(skip)]
    behind: Option<Uuid>,
}

impl Event {
    /// The state, by precedence.
    pub fn state(&self) -> State {
        if self.unresolved {
            State::Unresolved
        } else if self.held {
            State::Held
        } else if self.parked {
            State::Parked
        } else if self.published {
            State::Published
        } else if self.in_flight {
            State::InFlight
        } else {
            State::Pending
        }
    }

    /// Which operation it is kept back for, and the generation.
    pub fn hold(&self) -> Option<(&str, i64)> {
        Some((self.operation_id.as_deref()?, self.generation?))
    }

    /// For people: what it waits for.
    pub fn why(&self) -> Cow<'static, str> {
        if let (State::Pending, true, Some(first)) = (self.state(), self.set_aside, self.behind) {
            return format!("Waits behind earlier events of its ordering key, the first of them {first}.")
                .into();
        }
        self.in_general().into()
    }

    fn in_general(&self) -> &'static str {
        match self.state() {
            State::Unresolved => {
                "Its transaction is open, prepared, or ended a moment ago; it is delivered if that commits."
            }
            State::Held => "Kept back until its operation is released or dropped.",
            State::Parked => "Set aside with evidence; waits for an operator.",
            State::InFlight => "A publisher has it in hand and waits for the broker's confirm.",
            State::Published => "The broker confirmed it and routed it to a queue.",
            State::Pending if self.set_aside => "Waits behind an earlier event of its ordering key.",
            State::Pending if self.unroutable => {
                "No queue is bound to the events exchange for its type; one event of the type is tried again, and all when it is taken."
            }
            State::Pending if self.backing_off == Some(true) => {
                "The last attempt failed; it is tried again at the next attempt's time."
            }
            State::Pending if self.paused => {
                "The drain of the service is paused by an admin; it goes on when that ends."
            }
            State::Pending => "Next in line: waits for the drainer and the broker.",
        }
    }
}

/// Looks one event up.
///
/// # Errors
/// The database's.
pub async fn event(pool: &Pool, id: Uuid) -> Result<Option<Event>, db::Error> {
    db::within(LIMIT, async {
        let mut read = pool.read().await?;
        let found = look(read.conn(), id).await;
        read.finish(found).await
    })
    .await
}

async fn look(conn: &mut db::Conn, id: Uuid) -> Result<Option<Event>, db::Error> {
    let mut found: Option<Event> = sqlx::query_as(EVENT).bind(id).fetch_optional(&mut *conn).await?;
    if let Some(event) = &mut found
        && event.state() == State::Pending
    {
        event.paused = pause::look(conn).await?.is_some();
        if event.set_aside {
            event.behind = sqlx::query_scalar(BEHIND)
                .bind(&event.ordering_key)
                .bind(event.seq)
                .fetch_optional(conn)
                .await?;
        }
    }
    Ok(found)
}

/// An event at one consuming service.
pub struct AtService {
    /// The service.
    pub service: String,
    /// Its queues, ascending, each with its row, `None` where nobody has begun it; or why nobody knows.
    pub rows: Result<Vec<(String, Option<inbox::Row>)>, db::Error>,
    /// Its inbox.
    pub desk: inbox::Desk,
}

/// What became of a message at these services, in their order.
pub async fn consumers(desks: Vec<(String, inbox::Desk)>, id: Uuid) -> Vec<AtService> {
    let asked = desks.into_iter().map(|(service, desk)| async move {
        let rows = db::within(CONSUMER_LIMIT, desk.everywhere(id)).await;
        AtService { service, rows, desk }
    });
    join_all(asked).await
}

/// What a service's queues remember of many messages, or why that is not known: by queue, processed and seen at all.
pub type Memory = (String, Result<Vec<(String, i64, i64)>, db::Error>);

/// What the inboxes of these services remember of many messages, asked side by side.
pub async fn memories(services: Vec<(String, inbox::Desk)>, messages: &[Uuid]) -> Vec<Memory> {
    let ask = |(name, desk): (String, inbox::Desk)| async move {
        (name, db::within(CONSUMER_LIMIT, desk.memory(messages)).await)
    };
    join_all(services.into_iter().filter(|(_, desk)| !desk.queues().is_empty()).map(ask)).await
}
