//! Building an event. The id is made first, so that whatever is sent again is the same request.
//!
//! Guarantees: nothing is judged or changed here; the rules are [`crate::envelope`]'s and the server's.

use std::time::SystemTime;

use holdfast_proto::v1;
use serde::Serialize;
use uuid::Uuid;

/// Begins an event of this type (1 to 255 bytes of `[A-Za-z0-9_.:-]`, dot-separated by custom), with a version 7 id made
/// now.
///
/// ```
/// use holdfast_client::outbox::event;
///
/// let event = event("order.placed").subject("o-1").json_text(r#"{"total":"9.90"}"#).build();
/// assert_eq!(event.id.len(), 36);
/// ```
pub fn event(event_type: impl Into<String>) -> EventBuilder {
    let event =
        v1::Event { id: Uuid::now_v7().to_string(), r#type: event_type.into(), ..v1::Event::default() };
    EventBuilder { event }
}

/// An event in the making; [`event`] begins one. Each method sets one field; the last call of a method wins.
///
/// ```
/// use std::time::SystemTime;
///
/// use holdfast_client::outbox::event;
/// use uuid::Uuid;
///
/// let placed = event("order.placed")
///     .id(Uuid::now_v7())
///     .subject("o-1")
///     .ordering_key("customer-7")
///     .time(SystemTime::now())
///     .json_text(r#"{"total":"9.90"}"#)
///     .content_type("application/vnd.orders+json")
///     .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
///     .tracestate("vendor=1")
///     .correlation_id("checkout-17")
///     .causation_id("cart-closed-3")
///     .extension("region", "eu")
///     .build();
/// assert_eq!(placed.ordering_key.as_deref(), Some("customer-7"));
///
/// let scanned = event("label.scanned").subject("o-1").binary([0x89, 0x50]).unordered().build();
/// assert_eq!(scanned.ordering_key.as_deref(), Some(""));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an event is staged by stage_in_tx or publish_in_tx"]
pub struct EventBuilder {
    event: v1::Event,
}

impl EventBuilder {
    /// An id of the caller's own: the same id with the same content is one event, however often it is staged.
    pub fn id(mut self, id: Uuid) -> Self {
        self.event.id = id.to_string();
        self
    }

    /// The aggregate the event is about, at most 1,024 bytes. It is the ordering key unless one is given.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.event.subject = subject.into();
        self
    }

    /// When it happened, to the nanosecond. Default: the database's clock when it is staged. Made anew for a retry it
    /// makes the content another one.
    pub fn time(mut self, time: SystemTime) -> Self {
        self.event.time = Some(time.into());
        self
    }

    /// The data: `value` as JSON. Value and types are kept, the order of keys is not.
    ///
    /// # Errors
    /// The value cannot be written as JSON, such as a map whose keys are no strings.
    ///
    /// ```
    /// # fn main() -> Result<(), serde_json::Error> {
    /// let event = holdfast_client::outbox::event("order.placed").json(&[1, 2, 3])?.build();
    /// # assert!(event.data.is_some());
    /// # Ok(()) }
    /// ```
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, serde_json::Error> {
        Ok(self.json_text(serde_json::to_string(value)?))
    }

    /// The data: a text that is JSON already.
    pub fn json_text(mut self, text: impl Into<String>) -> Self {
        self.event.data = Some(v1::event::Data::Json(text.into()));
        self
    }

    /// The data: bytes that survive byte for byte. They count with their base64 length towards the limit of 1 MiB.
    pub fn binary(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.event.data = Some(v1::event::Data::Binary(bytes.into()));
        self
    }

    /// The data's media type, at most 255 bytes. Default: `application/json` or `application/octet-stream`.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.event.data_content_type = media_type.into();
        self
    }

    /// Events of one key are delivered in order, one at a time. At most 1,024 bytes; default: the subject.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.event.ordering_key = Some(key.into());
        self
    }

    /// Not ordered with any other event, whatever its subject.
    pub fn unordered(self) -> Self {
        self.ordering_key("")
    }

    /// W3C trace context; with the trace state at most 64 KiB.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.event.traceparent = traceparent.into();
        self
    }

    /// W3C trace state; with the trace context at most 64 KiB.
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.event.tracestate = tracestate.into();
        self
    }

    /// Joins all the events of one business operation.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.event.correlation_id = id.into();
        self
    }

    /// The id of the message that caused this one.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.event.causation_id = id.into();
        self
    }

    /// A CloudEvents extension of the caller's own. The name: 1 to 64 lower-case ASCII letters and digits.
    pub fn extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.event.extensions.insert(name.into(), value.into());
        self
    }

    /// The event as it is sent.
    #[must_use]
    pub fn build(self) -> v1::Event {
        self.event
    }
}

impl From<EventBuilder> for v1::Event {
    fn from(builder: EventBuilder) -> Self {
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_proto::envelope::{self, Limits};

    use super::*;

    #[test]
    fn an_event_with_every_field_keeps_the_rules_and_says_what_was_given() -> Result<(), envelope::Invalid> {
        let id = Uuid::now_v7();
        let event = event("order.placed")
            .id(id)
            .subject("o-1")
            .time(SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5))
            .json_text(r#"{"a":1}"#)
            .content_type("application/vnd.orders+json")
            .ordering_key("customer-7")
            .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
            .tracestate("v=1")
            .correlation_id("c")
            .causation_id("m")
            .extension("region", "eu")
            .build();
        assert_eq!(event.time.map(|t| (t.seconds, t.nanos)), Some((1_700_000_000, 5)));
        assert_eq!(event.extensions.get("region").map(String::as_str), Some("eu"));
        let valid = envelope::validate(&[event], None, &Limits::default())?;
        assert_eq!(valid[0].id, id);
        assert_eq!(valid[0].ordering_key.as_deref(), Some("customer-7"));
        Ok(())
    }

    #[test]
    fn the_id_is_made_once_and_is_version_7() {
        let builder = event("a");
        let id = envelope::parse_id(&builder.clone().build().id);
        assert_eq!(id.map(|id| id.get_version_num()), Some(7));
        assert_eq!(builder.clone().build(), builder.build());
    }

    #[test]
    fn unordered_is_an_empty_key_and_no_key_is_none() {
        assert_eq!(event("a").subject("s").unordered().build().ordering_key.as_deref(), Some(""));
        assert_eq!(event("a").subject("s").build().ordering_key, None);
    }

    #[test]
    fn the_last_data_wins_and_what_is_no_json_is_an_error() -> Result<(), serde_json::Error> {
        let built = event("a").binary([1, 2]).json("text")?.build();
        assert_eq!(built.data, Some(v1::event::Data::Json(r#""text""#.into())));
        let no_json = std::collections::HashMap::from([(vec![1_u8], 1)]);
        assert!(event("a").json(&no_json).is_err());
        Ok(())
    }
}
