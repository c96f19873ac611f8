//! A valid event and its CloudEvents 1.0 document in structured mode.
//!
//! Guarantees: the text is one JSON object without duplicate keys; no string of the caller's can end the string it is
//! put into; JSON data is the caller's own text, put in as it was sent and never parsed again, binary data is base64.
//! Design: section 2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use time::{OffsetDateTime, UtcOffset};
use uuid::Uuid;

use super::SOURCE_PREFIX;
use super::limits::MAX_SERVICE_BYTES;
use crate::v1;

/// Begins every document; the source follows.
const HEAD: &str = r#"{"specversion":"1.0","source":"#;
/// Begins the time that the server fills in.
const TIME: &str = r#","time":""#;
/// The longest time: nanoseconds, UTC.
const TIME_BYTES: usize = "2026-01-01T00:00:00.123456789Z".len();

/// An event that keeps every rule, with what a row of the outbox is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Valid {
    /// The event's id: the caller's, or a version 7 one minted here.
    pub id: Uuid,
    /// The event type, which is the routing key.
    pub event_type: String,
    /// The subject, if there is one.
    pub subject: Option<String>,
    /// The subject again where it is a hyphenated UUID.
    pub aggregate_id: Option<Uuid>,
    /// The ordering key in force: the caller's, else the subject. `Some("")`: unordered on purpose; `None`: neither key
    /// nor subject was given.
    pub ordering_key: Option<String>,
    /// SHA-256 of the event as it was sent, before defaults; what "the same content" means.
    pub content_hash: [u8; 32],
    /// W3C trace context, for the message header.
    pub traceparent: Option<String>,
    /// W3C trace state, for the message header.
    pub tracestate: Option<String>,
    /// All members but `specversion`, `source` and a time that is filled in, each with a comma before it.
    members: String,
    /// Whether `time` is left to the moment of staging.
    needs_time: bool,
}

impl Valid {
    /// Puts together what was found valid. `time` is the event's own.
    pub(super) fn new(
        event: &v1::Event,
        id: Uuid,
        time: Option<OffsetDateTime>,
        content_hash: [u8; 32],
    ) -> Self {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let subject = given(&event.subject);
        Self {
            id,
            event_type: event.r#type.clone(),
            aggregate_id: super::parse_id(&event.subject),
            // Canonical, as hand-written SQL's default is: one aggregate must not have two keys.
            ordering_key: event
                .ordering_key
                .clone()
                .or_else(|| super::parse_id(&event.subject).map(|id| id.to_string()))
                .or_else(|| subject.clone()),
            subject,
            content_hash,
            traceparent: given(&event.traceparent),
            tracestate: given(&event.tracestate),
            members: members(event, id, time),
            needs_time: time.is_none(),
        }
    }

    /// The CloudEvents 1.0 document: a JSON object in structured mode, for the `jsonb` column.
    ///
    /// `source` is what [`super::source`] makes of the service. `now` is the database's clock, and is used only if
    /// the event has no time of its own; written in UTC.
    #[must_use]
    pub fn envelope_text(&self, source: &str, now: OffsetDateTime) -> String {
        self.document(source, self.needs_time.then_some(now))
    }

    /// As [`Valid::envelope_text`], for a statement that adds the database's time itself where
    /// [`Valid::needs_time`]: there the document has no `time`.
    #[must_use]
    pub fn envelope_text_for_insert(&self, source: &str) -> String {
        self.document(source, None)
    }

    /// Whether the event has no time of its own and gets the database's.
    #[must_use]
    pub fn needs_time(&self) -> bool {
        self.needs_time
    }

    fn document(&self, source: &str, filled_in: Option<OffsetDateTime>) -> String {
        let mut out = String::with_capacity(self.size());
        out.push_str(HEAD);
        push_string(&mut out, source);
        if let Some(time) = filled_in {
            out.push_str(TIME);
            push_time(&mut out, time);
            out.push('"');
        }
        out.push_str(&self.members);
        out.push('}');
        out
    }

    /// Bytes of the document with the longest source and time that it can get, so that its validity does not depend on
    /// the service's name or on the clock.
    pub(super) fn size(&self) -> usize {
        let source = "\"\"".len() + SOURCE_PREFIX.len() + MAX_SERVICE_BYTES;
        let time = if self.needs_time { TIME.len() + TIME_BYTES + 1 } else { 0 };
        HEAD.len() + source + time + self.members.len() + 1
    }
}

/// Everything that does not depend on the service or the clock.
fn members(event: &v1::Event, id: Uuid, time: Option<OffsetDateTime>) -> String {
    let data_bytes = match &event.data {
        None => 0,
        Some(v1::event::Data::Json(text)) => text.len(),
        Some(v1::event::Data::Binary(bytes)) => bytes.len() / 3 * 4 + 4,
    };
    // The small members of an ordinary event fit into the constant.
    let mut out = String::with_capacity(data_bytes + 512);
    let mut member = |name: &str, value: &str| {
        if !value.is_empty() {
            push_name(&mut out, name);
            push_string(&mut out, value);
        }
    };
    let default_type = match &event.data {
        None => "",
        Some(v1::event::Data::Json(_)) => "application/json",
        Some(v1::event::Data::Binary(_)) => "application/octet-stream",
    };
    let content_type =
        if event.data_content_type.is_empty() { default_type } else { &event.data_content_type };
    member("id", id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    member("type", &event.r#type);
    member("subject", &event.subject);
    member("datacontenttype", content_type);
    member("traceparent", &event.traceparent);
    member("tracestate", &event.tracestate);
    member("correlationid", &event.correlation_id);
    member("causationid", &event.causation_id);
    for (name, value) in &event.extensions {
        // An extension that is empty was still given.
        push_name(&mut out, name);
        push_string(&mut out, value);
    }
    if let Some(time) = time {
        out.push_str(TIME);
        push_time(&mut out, time);
        out.push('"');
    }
    match &event.data {
        None => {}
        Some(v1::event::Data::Json(text)) => {
            push_name(&mut out, "data");
            out.push_str(text);
        }
        Some(v1::event::Data::Binary(bytes)) => {
            push_name(&mut out, "data_base64");
            out.push('"');
            STANDARD.encode_string(bytes, &mut out);
            out.push('"');
        }
    }
    out
}

fn push_name(out: &mut String, name: &str) {
    out.push(',');
    push_string(out, name);
    out.push(':');
}

/// Writes a JSON string. Only what JSON demands is escaped; all else stays UTF-8.
pub(super) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Writes RFC 3339 in UTC with 0, 3, 6 or 9 digits of a second, as protobuf's own JSON does.
fn push_time(out: &mut String, time: OffsetDateTime) {
    // Only the last hours of year 9999 have no UTC form, when they come with a negative offset.
    let time = time.checked_to_offset(UtcOffset::UTC).unwrap_or(time);
    let (year, month, day) = (time.year().max(0), u8::from(time.month()), time.day());
    let (hour, minute, second) = time.to_hms();
    out.push_str(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"));
    let nanos = time.nanosecond();
    if nanos.is_multiple_of(1_000_000) {
        if nanos > 0 {
            out.push_str(&format!(".{:03}", nanos / 1_000_000));
        }
    } else if nanos.is_multiple_of(1_000) {
        out.push_str(&format!(".{:06}", nanos / 1_000));
    } else {
        out.push_str(&format!(".{nanos:09}"));
    }
    out.push('Z');
}
