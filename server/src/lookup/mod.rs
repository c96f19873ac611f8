//! "Where is my event": one row, read whole, and its one state by precedence. Reads only. Design, sections 13 and 15.2.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::{self, Pool};
use crate::outbox::pause;

/// Most time for a look-up, waiting for a connection included.
const LIMIT: Duration = Duration::from_secs(8);

const EVENT: &str = include_str!("queries/event.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[("event", EVENT)];

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
    pub fn why(&self) -> &'static str {
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
    }
    Ok(found)
}
