//! The real [`Publisher`]: one channel in confirm mode, rebuilt when it dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::careful::Careful;
use super::link::LinkError;
use super::wire::{Letter, Wire};
use super::{Link, Outcome, Outgoing, Publisher, Weather};

/// After a channel was refused nobody asks for the next one before: each try costs the broker three.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Publishes that were given up stay with their channel until the broker answers. Past so many the channel is replaced.
const MOST_GIVEN_UP: usize = 1_000;

/// Publishes to the events exchange over a channel of its own: a channel that dies takes only one service's window along.
pub struct AmqpPublisher {
    link: Link,
    slot: Mutex<Slot>,
    given_up: AtomicUsize,
    careful: Arc<Careful>,
    confirm_timeout: Duration,
}

#[derive(Default)]
struct Slot {
    wire: Option<Wire>,
    not_before: Option<Instant>,
    complained: bool,
}

impl AmqpPublisher {
    /// `confirm_timeout` bounds a publish and the wait for its confirm together.
    pub fn new(link: Link, confirm_timeout: Duration) -> Self {
        let (slot, given_up, careful) = (Mutex::default(), AtomicUsize::new(0), Arc::default());
        Self { link, slot, given_up, careful, confirm_timeout }
    }

    async fn wire(&self) -> Option<Wire> {
        let mut slot = self.slot.lock().await;
        if self.given_up.load(Ordering::Relaxed) > MOST_GIVEN_UP {
            self.given_up.store(0, Ordering::Relaxed);
            slot.wire = None;
        }
        if let Some(wire) = slot.wire.as_ref().filter(|wire| wire.is_open()) {
            return Some(wire.clone());
        }
        slot.wire = None;
        if slot.not_before.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        match self.link.confirm_channel().await {
            Ok(channel) => {
                let wire = Wire::open(channel, self.link.exchange(), self.careful.clone());
                *slot = Slot { wire: Some(wire.clone()), ..Slot::default() };
                self.given_up.store(0, Ordering::Relaxed);
                Some(wire)
            }
            // Nobody was asked: the next connection may come at any moment.
            Err(LinkError::Away) => None,
            Err(error) => {
                slot.not_before = Some(Instant::now() + REFUSED_PAUSE);
                if slot.complained {
                    debug!(%error, "no channel to publish on");
                } else {
                    slot.complained = true;
                    warn!(%error, "no channel to publish on; events wait in their outboxes");
                }
                None
            }
        }
    }
}

impl Publisher for AmqpPublisher {
    async fn publish(&self, message: Outgoing) -> Outcome {
        let (routing_key, properties) = match dress(&message) {
            Ok(dressed) => dressed,
            Err(reason) => return Outcome::Unsendable(reason),
        };
        let started = Instant::now();
        // At most half of the time: the confirm needs the rest, and the lease counts on the sum.
        let Ok(turn) = tokio::time::timeout(self.confirm_timeout / 2, self.careful.turn()).await else {
            return Outcome::Lost;
        };
        let limit = self.confirm_timeout.saturating_sub(started.elapsed());
        // Without a channel nothing was sent: that is never the message's fault, however long it took to find out.
        let Some(wire) = self.wire().await else { return Outcome::Lost };
        let (answer, answered) = oneshot::channel();
        wire.send(Letter { id: message.message_id, routing_key, properties, body: message.body, answer });
        let outcome = match tokio::time::timeout(limit, answered).await {
            Ok(answered) => answered.unwrap_or(Outcome::Lost),
            // A blocked or dying connection confirms nothing; that is not the message's fault either.
            Err(_) if *self.link.weather().borrow() != Weather::Fair => Outcome::Lost,
            Err(_) => {
                self.given_up.fetch_add(1, Ordering::Relaxed);
                Outcome::TimedOut
            }
        };
        if turn.is_some() && outcome != Outcome::Lost {
            self.careful.judged();
        }
        if outcome == Outcome::Confirmed {
            self.careful.confirmed();
        }
        outcome
    }

    fn weather(&self) -> watch::Receiver<Weather> {
        self.link.weather()
    }
}

/// Headers are not split into frames: above `frame_max` (128 KiB) the broker closes the whole connection.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Newer brokers refuse larger messages by default, and close the channel with everything on it. What is staged is at most
/// 1 MiB; hand-written SQL can exceed it.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Properties of design section 2, or why no broker could carry them: AMQP's short strings hold 255 bytes, and their plain
/// constructor panics above.
fn dress(message: &Outgoing) -> Result<(ShortString, BasicProperties), &'static str> {
    let short =
        |s: &str| ShortString::try_new(s).map_err(|_| "a property is longer than the 255 bytes AMQP allows");
    let mut headers = FieldTable::default();
    let mut header_bytes = 0;
    for (name, value) in [("traceparent", &message.traceparent), ("tracestate", &message.tracestate)] {
        if let Some(value) = value {
            header_bytes += value.len();
            headers.insert(name.into(), AMQPValue::LongString(value.as_str().into()));
        }
    }
    if let Some(replay) = message.replay {
        headers.insert("x-holdfast-replay".into(), AMQPValue::LongString(replay.to_string().into()));
    }
    if header_bytes > MAX_HEADER_BYTES {
        return Err("the trace headers are over 64 KiB");
    }
    if message.body.len() > MAX_BODY_BYTES {
        return Err("the envelope is over 16 MiB");
    }
    let event_type = short(&message.event_type)?;
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(short(&message.message_id)?)
        .with_type(event_type.clone())
        .with_app_id(short(&message.app_id)?)
        .with_timestamp(message.timestamp)
        .with_content_type("application/cloudevents+json".into())
        .with_headers(headers);
    Ok((event_type, properties))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event_type: String, tracestate: Option<String>) -> Outgoing {
        Outgoing {
            event_type,
            message_id: String::new(),
            app_id: String::new(),
            timestamp: 0,
            traceparent: None,
            tracestate,
            replay: None,
            body: String::new(),
        }
    }

    #[test]
    fn a_routing_key_above_255_bytes_is_unsendable_and_does_not_panic() {
        assert!(dress(&message("x".repeat(256), None)).is_err());
        assert!(dress(&message("x".repeat(255), None)).is_ok());
    }

    #[test]
    fn headers_that_would_not_fit_one_frame_are_unsendable() {
        assert!(dress(&message("t".into(), Some("x".repeat(MAX_HEADER_BYTES + 1)))).is_err());
        assert!(dress(&message("t".into(), Some("x".repeat(MAX_HEADER_BYTES)))).is_ok());
    }
}
