//! RabbitMQ: one supervised connection for publishing, and the port through which everything is published.
//!
//! Guarantees: an outcome is `Confirmed` only if the broker confirmed the message **and did not return it**; every await
//! towards the broker ends by a time-out; the connection is rebuilt for as long as the server runs. Does not: retry a
//! publish, or know rows. Consuming will use a connection of its own. Design, section 4; pitfalls, "RabbitMQ and lapin".

mod careful;
mod inspect;
mod letters;
mod link;
mod publisher;
mod returns;
mod topology;
mod wire;

use std::future::Future;

use tokio::sync::watch;
use uuid::Uuid;

pub use inspect::{Exchange, InspectError, inspect};
pub use letters::{DeadLetter, DeadLetters, LetterError};
pub use link::{Link, LinkOptions};
pub use publisher::AmqpPublisher;
pub use topology::Topology;

/// Whether the broker can take messages now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// No connection.
    Away,
    /// Connected, and told to stop publishing (memory or disk alarm).
    Blocked,
    /// Connected.
    Fair,
}

/// One message, ready for the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Routing key and `type` property: the event's type.
    pub event_type: String,
    /// `message_id`: the event's id.
    pub message_id: String,
    /// `app_id`: the service.
    pub app_id: String,
    /// `timestamp`, whole seconds since the epoch.
    pub timestamp: u64,
    /// W3C trace context, if the event carries it.
    pub traceparent: Option<String>,
    /// W3C trace state, if the event carries it.
    pub tracestate: Option<String>,
    /// The replay that sends it: header `x-holdfast-replay`.
    pub replay: Option<Uuid>,
    /// The envelope's JSON text.
    pub body: String,
}

/// How one publish ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Confirmed, and routed to at least one queue.
    Confirmed,
    /// Confirmed, but returned: no queue took it. Holds the broker's words.
    Returned(String),
    /// The broker refused responsibility.
    Nacked,
    /// No confirm in time, on a connection that seemed to work.
    TimedOut,
    /// The broker closed the channel over this message, alone on it. Holds the broker's words.
    Refused(String),
    /// No client can put this message on the wire (a routing key over 255 bytes). Holds the reason.
    Unsendable(&'static str),
    /// The connection or channel went, or the broker is blocked: the fate is unknown, and not the message's fault.
    Lost,
}

/// The port to the broker. A trait because nacks, returns and lost confirms must be scripted in tests.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes one message and waits for its outcome; always ends.
    fn publish(&self, message: Outgoing) -> impl Future<Output = Outcome> + Send;

    /// The broker's weather, to watch.
    fn weather(&self) -> watch::Receiver<Weather>;
}
