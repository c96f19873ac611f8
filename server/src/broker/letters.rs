//! Dead letters: published to an exchange of their own, over a channel of their own on the publishing connection.
//!
//! Guarantees: as for events, an outcome is `Confirmed` only if the broker confirmed the letter and did not return it; before the
//! first letter of a channel the topology is declared, or looked at ([`super::topology`]). Does not: retry.

use std::sync::Arc;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use super::careful::Careful;
use super::link::LinkError;
use super::topology::Topology;
use super::wire::{Letter, Wire};
use super::{Link, Outcome, Weather};

/// The largest message that newer brokers take by default.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// One dead letter, ready for the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// `dlq.` and the queue.
    pub routing_key: String,
    /// `message_id`: the message that died.
    pub message_id: String,
    /// `type`: its type.
    pub event_type: String,
    /// `app_id`: the service that consumed it.
    pub app_id: String,
    /// `timestamp`, whole seconds since the epoch.
    pub timestamp: u64,
    /// JSON.
    pub body: String,
}

/// Why a letter was not even sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterError {
    /// There is no broker at the moment, or it takes nothing.
    Away,
    /// The topology is not as it must be; in words, naming the object.
    Topology(String),
}

/// Publishes dead letters. One for the whole server.
pub struct DeadLetters {
    link: Link,
    topology: Topology,
    wire: Mutex<Option<Wire>>,
    careful: Arc<Careful>,
    timeout: Duration,
}

impl DeadLetters {
    /// `timeout` bounds a publish and the wait for its confirm together.
    pub fn new(link: Link, topology: Topology, timeout: Duration) -> Self {
        Self { link, topology, wire: Mutex::default(), careful: Arc::default(), timeout }
    }

    /// Where letters go.
    pub fn exchange(&self) -> &str {
        &self.topology.dlx
    }

    /// Publishes one letter and waits for its outcome; always ends.
    ///
    /// # Errors
    /// It was not sent.
    pub async fn publish(&self, letter: DeadLetter) -> Result<Outcome, LetterError> {
        let DeadLetter { routing_key, message_id, event_type, app_id, timestamp, body } = letter;
        let (key, properties) = match dress(&routing_key, &message_id, &event_type, &app_id, timestamp) {
            Some(dressed) if body.len() <= MAX_BODY_BYTES => dressed,
            _ => return Ok(Outcome::Unsendable("the letter is over a limit of AMQP")),
        };
        let weather = self.link.weather();
        if *weather.borrow() != Weather::Fair {
            return Err(LetterError::Away);
        }
        let started = Instant::now();
        let Ok(turn) = tokio::time::timeout(self.timeout / 2, self.careful.turn()).await else {
            return Err(LetterError::Away);
        };
        let wire = self.open().await?;
        let (answer, answered) = oneshot::channel();
        wire.send(Letter { id: message_id, routing_key: key, properties, body, answer });
        let limit = self.timeout.saturating_sub(started.elapsed());
        let outcome = match tokio::time::timeout(limit, answered).await {
            Ok(answered) => answered.unwrap_or(Outcome::Lost),
            Err(_) => {
                // Whatever the channel still owes is nobody's any more.
                *self.wire.lock().await = None;
                Outcome::TimedOut
            }
        };
        if turn.is_some() && outcome != Outcome::Lost {
            self.careful.judged();
        }
        if outcome == Outcome::Confirmed {
            self.careful.confirmed();
        }
        Ok(outcome)
    }

    async fn open(&self) -> Result<Wire, LetterError> {
        let mut slot = self.wire.lock().await;
        if let Some(wire) = slot.as_ref().filter(|wire| wire.is_open()) {
            return Ok(wire.clone());
        }
        *slot = None;
        let channel = self.link.letter_channel(&self.topology).await.map_err(|error| match error {
            LinkError::Topology(words) => LetterError::Topology(words),
            _ => LetterError::Away,
        })?;
        let exchange = ShortString::try_new(self.topology.dlx.as_str())
            .map_err(|_| LetterError::Topology("topology.dlx is over 255 bytes".to_owned()))?;
        let wire = Wire::open(channel, exchange, self.careful.clone());
        *slot = Some(wire.clone());
        Ok(wire)
    }
}

/// `None`: AMQP's short strings hold 255 bytes, and their plain constructor panics above.
fn dress(
    routing_key: &str,
    message_id: &str,
    event_type: &str,
    app_id: &str,
    timestamp: u64,
) -> Option<(ShortString, BasicProperties)> {
    let short = |text: &str| ShortString::try_new(text).ok();
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(short(message_id)?)
        .with_type(short(event_type)?)
        .with_app_id(short(app_id)?)
        .with_timestamp(timestamp)
        .with_content_type("application/json".into());
    Some((short(routing_key)?, properties))
}
