//! The real [`Publisher`]: one channel in confirm mode, rebuilt when it dies.

use std::time::Duration;

use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{Mutex, watch};
use tracing::{debug, warn};

use super::{Link, Outcome, Outgoing, Publisher, Weather};

/// Publishes to the events exchange over a channel of its own: a channel that dies takes only one service's window along.
pub struct AmqpPublisher {
    link: Link,
    channel: Mutex<Slot>,
    confirm_timeout: Duration,
}

#[derive(Default)]
struct Slot {
    channel: Option<Channel>,
    complained: bool,
}

impl AmqpPublisher {
    /// `confirm_timeout` bounds the publish and the wait for its confirm together.
    pub fn new(link: Link, confirm_timeout: Duration) -> Self {
        Self { link, channel: Mutex::new(Slot::default()), confirm_timeout }
    }

    async fn channel(&self) -> Option<Channel> {
        let mut slot = self.channel.lock().await;
        if let Some(channel) = slot.channel.as_ref().filter(|c| c.status().connected()) {
            return Some(channel.clone());
        }
        slot.channel = None;
        match self.link.confirm_channel().await {
            Ok(channel) => {
                slot.complained = false;
                slot.channel = Some(channel.clone());
                Some(channel)
            }
            Err(error) => {
                if slot.complained || matches!(error, super::link::LinkError::Away) {
                    debug!(%error, "no channel to publish on");
                } else {
                    slot.complained = true;
                    warn!(%error, "no channel to publish on; events wait in their outboxes");
                }
                None
            }
        }
    }

    async fn send(&self, message: Outgoing) -> Outcome {
        let (routing_key, properties) = match dress(&message) {
            Ok(dressed) => dressed,
            Err(reason) => return Outcome::Unsendable(reason),
        };
        let Some(channel) = self.channel().await else { return Outcome::Lost };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel
            .basic_publish(self.link.exchange(), routing_key, options, message.body.as_bytes(), properties)
            .await;
        let confirmation = match sent {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match confirmation {
            Ok(Confirmation::Ack(None)) => Outcome::Confirmed,
            // Unroutable and mandatory: an ack that carries the message back.
            Ok(Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back))) => {
                Outcome::Returned(format!("{} {}", back.reply_code, back.reply_text))
            }
            Ok(Confirmation::Nack(None)) => Outcome::Nacked,
            // A channel without confirm mode tells nothing; ours always has it.
            Ok(Confirmation::NotRequested) => Outcome::Lost,
            Err(error) => {
                debug!(%error, "publish lost with its channel");
                Outcome::Lost
            }
        }
    }
}

impl Publisher for AmqpPublisher {
    async fn publish(&self, message: Outgoing) -> Outcome {
        match tokio::time::timeout(self.confirm_timeout, self.send(message)).await {
            Ok(outcome) => outcome,
            // A blocked or dying connection confirms nothing; that is not the message's fault.
            Err(_) if *self.link.weather().borrow() != Weather::Fair => Outcome::Lost,
            Err(_) => Outcome::TimedOut,
        }
    }

    fn weather(&self) -> watch::Receiver<Weather> {
        self.link.weather()
    }
}

/// Headers are not split into frames: above `frame_max` (128 KiB) the broker closes the whole connection.
const MAX_HEADER_BYTES: usize = 64 * 1024;

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
    if header_bytes > MAX_HEADER_BYTES {
        return Err("the trace headers are over 64 KiB");
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
