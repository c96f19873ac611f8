//! Properties over generated events: what is accepted can be read, nothing escapes its string, nothing panics.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use proptest::prelude::*;
use prost_types::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::super::compose::push_string;
use super::super::{Invalid, Limits, MAX_MESSAGE_BYTES, service_name_problem, validate};
use super::{Data, Event, NOW};

/// The keys of one object, as often as they are there; written without the code that is tested.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct AsMap;
        impl<'de> Visitor<'de> for AsMap {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = members.next_entry::<String, IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        reader.deserialize_map(AsMap)
    }
}

/// Text that tries to leave its string, and ordinary text.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("\",\"id\":\"x".to_owned()),
        Just("\\".to_owned()),
        Just("\\\"}\u{2028}".to_owned()),
        "[\\\\\"{}:,\u{0}\u{1f}\u{7f}a-zß😀]{0,12}",
        "[ -~]{0,40}",
        any::<String>(),
    ]
}

/// JSON texts, right and nearly right.
fn json_text() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        number,
        hostile().prop_map(|text| serde_json::Value::from(text).to_string()),
        hostile(),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let key = prop_oneof![Just("a".to_owned()), "[a-d]", hostile()]
            .prop_map(|text| serde_json::Value::from(text).to_string());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.into_iter().map(|(k, v)| format!("{k}: {v}")).collect();
                format!("{{{}}}", members.join(" ,"))
            }),
        ]
    })
}

fn data() -> impl Strategy<Value = Option<Data>> {
    prop_oneof![
        Just(None),
        json_text().prop_map(|text| Some(Data::Json(text))),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Some(Data::Binary(bytes))),
    ]
}

/// An event in which every field may be good or bad.
fn any_event() -> impl Strategy<Value = Event> {
    let id = prop_oneof![
        Just(String::new()),
        any::<u128>().prop_map(|n| uuid::Uuid::from_u128(n).to_string()),
        hostile()
    ];
    let kind = prop_oneof![4 => "[A-Za-z0-9_.:-]{1,20}", 1 => hostile()];
    let time = prop::option::of((any::<i32>(), any::<i32>()).prop_map(|(seconds, nanos)| Timestamp {
        seconds: i64::from(seconds).saturating_mul(1_000_000_007),
        nanos,
    }));
    let content = prop_oneof![Just(String::new()), "[a-z]{1,5}/[a-z+.]{1,8}", hostile()];
    let names = prop_oneof![4 => "[a-z0-9]{1,8}", 1 => Just("data".to_owned()), 1 => hostile()];
    let extensions = prop::collection::btree_map(names, hostile(), 0..3);
    let texts =
        [hostile().boxed(), hostile().boxed(), hostile().boxed(), hostile().boxed(), hostile().boxed()];
    (id, kind, time, content, extensions, texts, prop::option::of(hostile()), data()).prop_map(
        |(id, r#type, time, data_content_type, extensions, texts, ordering_key, data)| {
            let [subject, traceparent, tracestate, correlation_id, causation_id] = texts;
            Event {
                id,
                r#type,
                subject,
                time,
                data_content_type,
                ordering_key,
                traceparent,
                tracestate,
                correlation_id,
                causation_id,
                extensions,
                data,
            }
        },
    )
}

/// An event that keeps every rule but, perhaps, those of its JSON data.
fn good_event() -> impl Strategy<Value = Event> {
    let text = || "[ !-~ß😀\u{2028}]{0,12}";
    let extensions = prop::collection::btree_map("x[a-z0-9]{1,8}", text(), 0..3);
    let texts = [text(), text(), text(), text(), text()];
    (any::<u128>(), "[A-Za-z0-9_.:-]{1,20}", texts, extensions, data()).prop_map(
        |(id, r#type, texts, extensions, data)| {
            let [subject, traceparent, tracestate, correlation_id, causation_id] = texts;
            Event {
                id: uuid::Uuid::from_u128(id).to_string(),
                r#type,
                subject,
                traceparent,
                tracestate,
                correlation_id,
                causation_id,
                extensions,
                data,
                ..Event::default()
            }
        },
    )
}

/// What every accepted event owes.
fn readable_and_faithful(event: &Event) -> Result<bool, TestCaseError> {
    let Ok(valid) = validate(std::slice::from_ref(event), None, &Limits::default()) else {
        return Ok(false);
    };
    let text = valid[0].envelope_text("/holdfast/orders", NOW);
    let document: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    let Keys(keys) = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "duplicate keys: {}", text);

    let member = |name: &str| document.get(name).and_then(|v| v.as_str()).unwrap_or_default();
    prop_assert_eq!(member("source"), "/holdfast/orders");
    prop_assert_eq!(member("type"), &event.r#type);
    prop_assert_eq!(member("subject"), &event.subject);
    prop_assert_eq!(member("traceparent"), &event.traceparent);
    prop_assert_eq!(member("tracestate"), &event.tracestate);
    prop_assert_eq!(member("correlationid"), &event.correlation_id);
    prop_assert_eq!(member("causationid"), &event.causation_id);
    for (name, value) in &event.extensions {
        prop_assert_eq!(member(name), value);
    }
    if let Some(Data::Json(data)) = &event.data {
        let data: serde_json::Value =
            serde_json::from_str(data).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&document["data"], &data);
    }
    Ok(true)
}

proptest! {
    #[test]
    fn whatever_is_accepted_can_be_read_and_nothing_escapes(event in any_event()) {
        readable_and_faithful(&event)?;
    }

    #[test]
    fn good_events_are_refused_for_their_json_only(event in good_event()) {
        let accepted = readable_and_faithful(&event)?;
        prop_assert!(accepted || matches!(event.data, Some(Data::Json(_))));
    }

    #[test]
    fn a_string_is_written_as_any_json_reader_reads_it(text in any::<String>()) {
        let mut out = String::new();
        push_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_str::<String>(&out).ok(), Some(text));
    }

    #[test]
    fn hostile_requests_never_panic_and_errors_are_short(events in prop::collection::vec(any_event(), 0..6)) {
        match validate(&events, None, &Limits { max_events: 4, max_envelope_bytes: 400 }) {
            Ok(valid) => prop_assert_eq!(valid.len(), events.len()),
            Err(error) => {
                prop_assert!(error.to_string().len() <= MAX_MESSAGE_BYTES);
                if let Invalid::Violations(violations) = error {
                    prop_assert!(!violations.is_empty());
                }
            }
        }
    }

    #[test]
    fn json_of_any_bytes_is_judged_without_panic(text in any::<String>()) {
        readable_and_faithful(&super::json(&text))?;
    }

    #[test]
    fn a_good_service_name_matches_the_pattern(name in any::<String>()) {
        let bytes = name.as_bytes();
        let pattern = (1..=63).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && bytes.iter().all(|b| b"abcdefghijklmnopqrstuvwxyz0123456789-".contains(b));
        prop_assert_eq!(service_name_problem(&name).is_none(), pattern && name != "holdfast" && name != "payload");
    }
}
