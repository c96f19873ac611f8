//! A message as a handler sees it.

use lapin::BasicProperties;
use lapin::types::AMQPValue;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::inbox::Delivery;

/// A message of Holdfast's: its CloudEvents document as the body, its id as `message_id`.
///
/// ```
/// use holdfast_client::{Message, inbox::HandlerError};
///
/// #[derive(serde::Deserialize)]
/// struct Settled {
///     amount: String,
/// }
///
/// fn amount(message: &Message) -> Result<String, HandlerError> {
///     let settled: Settled = message.data().map_err(HandlerError::dead_letter_now)?;
///     Ok(settled.amount)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Message {
    pub(super) delivery: Delivery,
    pub(super) properties: BasicProperties,
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) body: Vec<u8>,
    pub(super) document: Option<Value>,
}

impl Message {
    /// Takes over what the broker delivered. `None`: its `message_id` is no UUID, so that the inbox cannot know it.
    pub(super) fn new(queue: &str, raw: &mut lapin::message::Delivery) -> Option<Self> {
        let properties = std::mem::take(&mut raw.properties);
        let id = properties.message_id().as_ref().and_then(|id| Uuid::try_parse(id.as_str()).ok());
        let Some(id) = id else {
            raw.properties = properties;
            return None;
        };
        let short = |text: &Option<lapin::types::ShortString>| {
            let text = text.as_ref().map(|text| text.as_str().to_owned()).unwrap_or_default();
            // What the inbox would refuse; for those who look later only.
            if text.chars().any(char::is_control) { String::new() } else { text }
        };
        let mut delivery = Delivery::new(queue, id)
            .source_service(short(properties.app_id()))
            .event_type(short(properties.kind()))
            .redelivered(raw.redelivered)
            .cycle(number(&properties, "x-holdfast-cycle").unwrap_or(0));
        if let Some(replay) = text(&properties, "x-holdfast-replay").and_then(|id| Uuid::try_parse(&id).ok())
        {
            delivery = delivery.replay_id(replay);
        }
        let body = std::mem::take(&mut raw.data);
        Some(Self {
            delivery,
            properties,
            exchange: raw.exchange.to_string(),
            routing_key: raw.routing_key.to_string(),
            document: serde_json::from_slice(&body).ok(),
            body,
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.delivery.envelope_id
    }

    /// As the inbox knows it.
    #[must_use]
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Its event type, the property `type`; empty if it has none.
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.delivery.event_type
    }

    /// Who sent it, the property `app_id`; empty if it has none.
    #[must_use]
    pub fn source_service(&self) -> &str {
        &self.delivery.source_service
    }

    /// The CloudEvents `subject`.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.document.as_ref()?.get("subject")?.as_str()
    }

    /// The CloudEvents document; `None` if the body is no JSON.
    #[must_use]
    pub fn document(&self) -> Option<&Value> {
        self.document.as_ref()
    }

    /// The CloudEvents `data`, read as JSON into a type of one's own.
    ///
    /// # Errors
    /// There is none, or it is of another shape. Repetition does not help.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(
            self.document.as_ref().and_then(|document| document.get("data")).unwrap_or(&Value::Null),
        )
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The W3C trace context of whoever staged the event: the header `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        text(&self.properties, "traceparent")
    }

    /// The W3C trace state: the header `tracestate`.
    #[must_use]
    pub fn tracestate(&self) -> Option<String> {
        text(&self.properties, "tracestate")
    }

    /// All its AMQP properties.
    #[must_use]
    pub fn properties(&self) -> &BasicProperties {
        &self.properties
    }

    /// The exchange it came from, and its routing key.
    #[must_use]
    pub fn route(&self) -> (&str, &str) {
        (&self.exchange, &self.routing_key)
    }
}

fn header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

fn text(properties: &BasicProperties, name: &str) -> Option<String> {
    match header(properties, name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

/// Any width of number, or its digits as a text; never negative.
fn number(properties: &BasicProperties, name: &str) -> Option<i32> {
    let wide = match header(properties, name)? {
        AMQPValue::ShortShortInt(n) => i64::from(*n),
        AMQPValue::ShortShortUInt(n) => i64::from(*n),
        AMQPValue::ShortInt(n) => i64::from(*n),
        AMQPValue::ShortUInt(n) => i64::from(*n),
        AMQPValue::LongInt(n) => i64::from(*n),
        AMQPValue::LongUInt(n) => i64::from(*n),
        AMQPValue::LongLongInt(n) => *n,
        _ => text(properties, name)?.parse().ok()?,
    };
    i32::try_from(wide).ok().filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;

    const ID: &str = "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a21";

    fn delivered(properties: BasicProperties, body: &str) -> Option<Message> {
        let mut raw =
            lapin::message::Delivery::mock(1, "e".into(), "k".into(), true, body.as_bytes().to_vec());
        raw.properties = properties;
        Message::new("q", &mut raw)
    }

    #[test]
    fn what_the_inbox_must_know_is_read_from_properties_and_headers() -> Result<(), serde_json::Error> {
        let mut headers = FieldTable::default();
        headers.insert("traceparent".into(), AMQPValue::LongString("00-a".into()));
        headers.insert("x-holdfast-replay".into(), AMQPValue::LongString(ID.into()));
        headers.insert("x-holdfast-cycle".into(), AMQPValue::LongLongInt(3));
        let properties = BasicProperties::default()
            .with_message_id(ID.into())
            .with_app_id("payments".into())
            .with_type("payment.settled".into())
            .with_headers(headers);
        let Some(message) = delivered(properties, r#"{"subject":"o-1","data":{"n":7}}"#) else {
            return Err(serde::de::Error::custom("no message"));
        };
        let delivery = message.delivery();
        assert_eq!((delivery.replay_id.map(|id| id.to_string()).as_deref(), delivery.cycle), (Some(ID), 3));
        assert_eq!((message.source_service(), message.event_type()), ("payments", "payment.settled"));
        assert_eq!((message.subject(), message.traceparent().as_deref()), (Some("o-1"), Some("00-a")));
        assert!(delivery.redelivered && message.data::<Value>()?["n"] == 7);
        Ok(())
    }

    #[test]
    fn without_a_uuid_for_an_id_it_is_no_message_and_keeps_what_it_has() {
        assert!(delivered(BasicProperties::default(), "{}").is_none());
        assert!(delivered(BasicProperties::default().with_message_id("7".into()), "{}").is_none());
    }

    #[test]
    fn odd_headers_are_none_and_a_body_that_is_no_json_is_kept() {
        let mut headers = FieldTable::default();
        headers.insert("x-holdfast-replay".into(), AMQPValue::Boolean(true));
        headers.insert("x-holdfast-cycle".into(), AMQPValue::LongInt(-1));
        headers.insert("traceparent".into(), AMQPValue::LongString(vec![0xff].into()));
        let properties = BasicProperties::default().with_message_id(ID.into()).with_headers(headers);
        let message = delivered(properties, "\u{1}no json");
        let message = message.as_ref();
        assert_eq!(message.map(|m| (m.delivery.replay_id, m.delivery.cycle)), Some((None, 0)));
        assert_eq!(message.and_then(Message::traceparent), None);
        assert_eq!(message.map(Message::body), Some("\u{1}no json".as_bytes()));
    }
}
