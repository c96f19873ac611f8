//! Judges the events of a request: every violation at once, by field path.
//!
//! Guarantees: the whole request is looked at before it is refused; nothing is normalised silently but the case of a
//! UUID's letters. What is too large is asked last, so a request that breaks rules as well is told of the rules first.
//! Design: section 2.

use std::collections::HashMap;

use time::OffsetDateTime;
use uuid::Uuid;

use super::limits::{
    HEADER_BYTES, Limits, MAX_CONTENT_TYPE_BYTES, MAX_EXTENSION_NAME_BYTES, MAX_KEY_BYTES,
    MAX_OPERATION_BYTES, MAX_TYPE_BYTES,
};
use super::{Invalid, TooLarge, Valid, Violations, hash, json};
use crate::v1;

/// Names that an extension cannot have: the attributes of CloudEvents, and the extensions with a field of their own.
const TAKEN_NAMES: [&str; 14] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "data",
    "data_base64",
    "dataschema",
    "traceparent",
    "tracestate",
    "correlationid",
    "causationid",
];

/// The hyphenated form of a UUID, and no other: braces, `urn:` and bare digits are refused, because other databases
/// and languages do not agree on them.
const UUID_BYTES: usize = 36;

/// Judges the events of one request, and `hold` if they are staged with one (it is part of the content).
///
/// Ok: one [`Valid`] for each event, in order. An event without an id gets a version 7 one.
///
/// # Errors
/// [`Invalid::Violations`] with every broken rule, fields named `events[3].type`; if there is none,
/// [`Invalid::TooLarge`] for the first envelope over `limits.max_envelope_bytes`. Past `limits.max_events` events only
/// that is reported, so that the work is bounded.
pub fn validate(
    events: &[v1::Event],
    hold: Option<&v1::Hold>,
    limits: &Limits,
) -> Result<Vec<Valid>, Invalid> {
    let mut violations = Violations::default();
    if events.is_empty() {
        violations.push("events", "must have at least one event");
    }
    if events.len() > limits.max_events {
        violations.push("events", format!("has {} events, the limit is {}", events.len(), limits.max_events));
        return Err(Invalid::Violations(violations));
    }

    if let Some(hold) = hold {
        check_hold(hold, &mut violations);
    }
    let mut seen = HashMap::with_capacity(events.len());
    let mut valid = Vec::with_capacity(events.len());
    let mut too_large = None;
    for (index, event) in events.iter().enumerate() {
        let mut one = One { index, violations: &mut violations };
        let before = one.violations.total();
        let sent = one.id(event, &mut seen);
        one.strings(event);
        let time = event.time.as_ref().and_then(|time| one.time(time));
        one.extensions(event);
        let growth = one.data(event);
        if violations.total() > before {
            continue;
        }
        let hash = hash::content_hash(event, sent, hold);
        let event = Valid::new(event, sent.unwrap_or_else(Uuid::now_v7), time, hash);
        let actual = event.size().saturating_add(growth);
        if actual > limits.max_envelope_bytes && too_large.is_none() {
            too_large = Some(TooLarge {
                field: format!("events[{index}]"),
                actual,
                limit: limits.max_envelope_bytes,
            });
        }
        valid.push(event);
    }

    if !violations.is_empty() {
        return Err(Invalid::Violations(violations));
    }
    match too_large {
        Some(too_large) => Err(too_large.into()),
        None => Ok(valid),
    }
}

/// A UUID in its hyphenated form of 36 characters, upper or lower case; `None` for anything else.
#[must_use]
pub fn parse_id(text: &str) -> Option<Uuid> {
    if text.len() == UUID_BYTES { Uuid::parse_str(text).ok() } else { None }
}

/// Judges a hold; its violations are fields of `hold`.
pub fn check_hold(hold: &v1::Hold, violations: &mut Violations) {
    if hold.operation_id.is_empty() {
        violations.push("hold.operation_id", "must not be empty");
    }
    check_operation_id("hold.operation_id", &hold.operation_id, violations);
    if hold.generation < 0 {
        violations.push("hold.generation", "must not be negative");
    }
}

/// Judges a hold's operation, in the field of that name; an empty one passes.
pub fn check_operation_id(field: &str, operation_id: &str, violations: &mut Violations) {
    if operation_id.len() > MAX_OPERATION_BYTES {
        violations
            .push(field, format!("is {} bytes, the limit is {MAX_OPERATION_BYTES}", operation_id.len()));
    }
    if let Some((at, _)) = operation_id.char_indices().find(|(_, c)| is_forbidden(*c)) {
        violations.push(field, format!("has a control character or noncharacter at byte {at}"));
    }
}

/// The judge of one event.
struct One<'v> {
    index: usize,
    violations: &'v mut Violations,
}

impl One<'_> {
    fn push(&mut self, field: &str, description: impl Into<String>) {
        self.violations.push(format!("events[{}].{field}", self.index), description);
    }

    /// The id that was sent, if it is a good one and not another event's.
    fn id(&mut self, event: &v1::Event, seen: &mut HashMap<Uuid, usize>) -> Option<Uuid> {
        if event.id.is_empty() {
            return None;
        }
        let Some(id) = parse_id(&event.id) else {
            self.push("id", "must be a UUID in its hyphenated form of 36 characters, or empty");
            return None;
        };
        if let Some(first) = seen.get(&id) {
            self.push("id", format!("is also the id of events[{first}]"));
        } else {
            seen.insert(id, self.index);
        }
        Some(id)
    }

    fn strings(&mut self, event: &v1::Event) {
        if event.r#type.is_empty() {
            self.push("type", "must not be empty");
        } else {
            self.at_most("type", &event.r#type, MAX_TYPE_BYTES);
            if !event.r#type.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b)) {
                self.push("type", "may contain A-Z, a-z, 0-9, _, ., : and - only");
            }
        }
        self.at_most("subject", &event.subject, MAX_KEY_BYTES);
        self.text("subject", &event.subject);
        if !event.data_content_type.is_empty() {
            self.at_most("data_content_type", &event.data_content_type, MAX_CONTENT_TYPE_BYTES);
            if !is_media_type(&event.data_content_type) {
                self.push("data_content_type", "must be a media type such as application/json");
            }
        }
        if let Some(key) = &event.ordering_key {
            self.at_most("ordering_key", key, MAX_KEY_BYTES);
            self.text("ordering_key", key);
        }
        self.text("traceparent", &event.traceparent);
        self.text("tracestate", &event.tracestate);
        self.text("correlation_id", &event.correlation_id);
        self.text("causation_id", &event.causation_id);
        let headers = event.traceparent.len() + event.tracestate.len();
        if headers > HEADER_BYTES {
            let field = if event.traceparent.len() > HEADER_BYTES { "traceparent" } else { "tracestate" };
            self.push(
                field,
                format!(
                    "traceparent and tracestate are {headers} bytes together, the limit is {HEADER_BYTES}"
                ),
            );
        }
    }

    fn at_most(&mut self, field: &str, text: &str, limit: usize) {
        if text.len() > limit {
            self.push(field, format!("is {} bytes, the limit is {limit}", text.len()));
        }
    }

    fn text(&mut self, field: &str, text: &str) {
        if let Some((at, _)) = text.char_indices().find(|(_, c)| is_forbidden(*c)) {
            self.push(field, format!("has a control character or noncharacter at byte {at}"));
        }
    }

    fn time(&mut self, time: &prost_types::Timestamp) -> Option<OffsetDateTime> {
        let nanos = u32::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
        let whole = OffsetDateTime::from_unix_timestamp(time.seconds).ok().filter(|t| t.year() >= 1);
        if nanos.is_none() {
            self.push("time", "nanos must be 0 to 999999999");
        }
        if whole.is_none() {
            self.push("time", "must lie within the years 1 to 9999");
        }
        whole?.replace_nanosecond(nanos?).ok()
    }

    fn extensions(&mut self, event: &v1::Event) {
        for (name, value) in &event.extensions {
            if TAKEN_NAMES.contains(&name.as_str()) {
                self.push(
                    &format!("extensions.{name}"),
                    "is the name of an attribute or of a field of its own",
                );
            } else if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
                // The name itself may be anything, so it is not repeated.
                self.push("extensions", "has a name that is not of a-z and 0-9 only");
            } else if name.len() > MAX_EXTENSION_NAME_BYTES {
                self.push(
                    "extensions",
                    format!("has a name of {} bytes, the limit is {MAX_EXTENSION_NAME_BYTES}", name.len()),
                );
            } else {
                self.text(&format!("extensions.{name}"), value);
            }
        }
    }

    /// By how many bytes the data grows when it is stored.
    fn data(&mut self, event: &v1::Event) -> usize {
        match &event.data {
            None | Some(v1::event::Data::Binary(_)) => 0,
            Some(v1::event::Data::Json(text)) => json::check(text).unwrap_or_else(|problem| {
                self.push("json", problem);
                0
            }),
        }
    }
}

/// What CloudEvents allows in no string: control characters and noncharacters. (Rust has no lone surrogates.)
fn is_forbidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

/// `type/subtype`, with parameters or without; printable ASCII only.
fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        && essence.split_once('/').is_some_and(|(kind, sub)| {
            [kind, sub].into_iter().all(|part| !part.is_empty() && !part.contains(['/', ' ', '"', ',']))
        })
}
