//! One test for each rule by which a request is refused, with the exact field path.

use std::collections::BTreeMap;

use prost_types::Timestamp;
use time::OffsetDateTime;
use time::macros::datetime;

use super::super::{
    HEADER_BYTES, Invalid, Limits, MAX_ENVELOPE_BYTES, MAX_EVENTS, MAX_KEY_BYTES, MAX_LISTED,
    MAX_LISTED_BYTES, MAX_MESSAGE_BYTES, MAX_TYPE_BYTES, TooLarge, is_reserved_service, service_name_problem,
    source, validate,
};
use super::{Data, Event, ID, accepted, event, json, only, refused};
use crate::v1::Hold;

/// A clock whose text is as long as it gets.
const LONGEST_NOW: OffsetDateTime = datetime!(2026-11-30 12:00:00.123456789 UTC);

fn violations(events: &[Event]) -> Vec<(String, String)> {
    match validate(events, None, &Limits::default()) {
        Err(Invalid::Violations(violations)) => {
            violations.listed().iter().map(|v| (v.field.clone(), v.description.clone())).collect()
        }
        other => unreachable!("not refused for a rule: {other:?}"),
    }
}

fn timed(seconds: i64, nanos: i32) -> Event {
    Event { time: Some(Timestamp { seconds, nanos }), ..event() }
}

fn extended(name: &str, value: &str) -> Event {
    Event { extensions: BTreeMap::from([(name.to_owned(), value.to_owned())]), ..event() }
}

#[test]
fn a_request_without_events_is_refused() {
    assert_eq!(violations(&[])[0].0, "events");
}

#[test]
fn a_thousand_events_pass_and_one_more_is_refused() {
    let many = vec![Event { id: String::new(), ..event() }; MAX_EVENTS + 1];
    assert_eq!(validate(&many[1..], None, &Limits::default()).map(|v| v.len()), Ok(MAX_EVENTS));
    let found = violations(&many);
    assert_eq!(found, [("events".to_owned(), "has 1001 events, the limit is 1000".to_owned())]);
}

#[test]
fn an_id_that_is_no_uuid_is_refused() {
    for id in [
        "x",
        " ",
        "0198c2a57d1e7c439d0c2f6f0f0c9a11",
        "{0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11}",
        "urn:uuid:0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11",
        "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a1g",
        "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a1\0",
    ] {
        assert_eq!(only(Event { id: id.into(), ..event() }).0, "events[0].id", "{id}");
    }
}

#[test]
fn an_id_twice_in_a_request_is_refused_whatever_the_case_of_its_letters() {
    let other = Event { id: ID.to_uppercase(), ..event() };
    assert_eq!(
        violations(&[event(), other]),
        [("events[1].id".to_owned(), "is also the id of events[0]".to_owned())]
    );
}

#[test]
fn a_type_is_refused_when_empty_too_long_or_of_other_characters() {
    let of = |text: &str| Event { r#type: text.into(), ..event() };
    assert_eq!(only(of("")), ("events[0].type".into(), "must not be empty".into()));
    for bad in ["order placed", "größe", "a/b", "a\nb", "a\0", "#", "*"] {
        assert_eq!(only(of(bad)).0, "events[0].type", "{bad}");
    }
    assert_eq!(
        only(of(&"t".repeat(MAX_TYPE_BYTES + 1))),
        ("events[0].type".into(), "is 256 bytes, the limit is 255".into())
    );
    accepted(of(&"t".repeat(MAX_TYPE_BYTES)));
    accepted(of("Order_1.placed:v2-beta"));
}

#[test]
fn a_subject_or_key_past_what_an_index_takes_is_refused() {
    let fits = "k".repeat(MAX_KEY_BYTES);
    let over = "k".repeat(MAX_KEY_BYTES + 1);
    accepted(Event { subject: fits.clone(), ordering_key: Some(fits), ..event() });
    assert_eq!(only(Event { subject: over.clone(), ..event() }).0, "events[0].subject");
    assert_eq!(only(Event { ordering_key: Some(over), ..event() }).0, "events[0].ordering_key");
}

#[test]
fn control_characters_and_noncharacters_are_refused_in_every_text() {
    for bad in ["\0", "a\nb", "\u{7f}", "\u{85}", "\u{fdd0}", "\u{ffff}", "\u{10fffe}"] {
        let text = || bad.to_owned();
        assert_eq!(only(Event { subject: text(), ..event() }).0, "events[0].subject");
        assert_eq!(only(Event { ordering_key: Some(text()), ..event() }).0, "events[0].ordering_key");
        assert_eq!(only(Event { traceparent: text(), ..event() }).0, "events[0].traceparent");
        assert_eq!(only(Event { tracestate: text(), ..event() }).0, "events[0].tracestate");
        assert_eq!(only(Event { correlation_id: text(), ..event() }).0, "events[0].correlation_id");
        assert_eq!(only(Event { causation_id: text(), ..event() }).0, "events[0].causation_id");
        assert_eq!(only(Event { data_content_type: text(), ..event() }).0, "events[0].data_content_type");
        assert_eq!(only(extended("mine", bad)).0, "events[0].extensions.mine");
    }
}

#[test]
fn a_content_type_that_is_no_media_type_is_refused() {
    let of = |text: &str| Event { data_content_type: text.into(), ..event() };
    for bad in ["json", "/", "a/", "/b", "a/b/c", "text/plain, text/html", "téxt/plain", "a b/c"] {
        assert_eq!(only(of(bad)).0, "events[0].data_content_type", "{bad}");
    }
    let long = format!("a/{}", "b".repeat(254));
    assert_eq!(only(of(&long)).1, "is 256 bytes, the limit is 255");
    accepted(of("application/json; charset=\"utf-8\""));
    accepted(of("application/vnd.acme.order+json"));
}

#[test]
fn a_time_out_of_range_is_refused_and_the_ends_pass() {
    for (seconds, nanos) in [
        (-62_135_596_801, 0),
        (253_402_300_800, 0),
        (i64::MIN, 0),
        (i64::MAX, 0),
        (0, -1),
        (0, 1_000_000_000),
    ] {
        assert_eq!(only(timed(seconds, nanos)).0, "events[0].time", "{seconds} {nanos}");
    }
    assert_eq!(refused(timed(i64::MAX, i32::MIN)).total(), 2);
    accepted(timed(-62_135_596_800, 0));
    accepted(timed(253_402_300_799, 999_999_999));
}

#[test]
fn an_extension_may_not_take_the_name_of_an_attribute_or_of_a_field() {
    for name in [
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
    ] {
        assert_eq!(only(extended(name, "x")).0, format!("events[0].extensions.{name}"));
    }
}

#[test]
fn an_extension_name_of_other_characters_is_refused_and_not_repeated() {
    for name in ["", "Mine", "my-own", "my_own", "größe", "a.b", "secret\0", "a\"b"] {
        let (field, description) = only(extended(name, "x"));
        assert_eq!(field, "events[0].extensions");
        assert!(name.is_empty() || !description.contains(name), "{description}");
    }
    assert_eq!(only(extended(&"n".repeat(65), "x")).0, "events[0].extensions");
    accepted(extended(&"n".repeat(64), ""));
}

#[test]
fn trace_headers_over_64_kib_together_are_refused() {
    let of = |parent: usize, state: usize| Event {
        traceparent: "p".repeat(parent),
        tracestate: "s".repeat(state),
        ..event()
    };
    accepted(of(55, HEADER_BYTES - 55));
    assert_eq!(only(of(55, HEADER_BYTES - 54)).0, "events[0].tracestate");
    assert_eq!(only(of(HEADER_BYTES + 1, 0)).0, "events[0].traceparent");
}

#[test]
fn an_envelope_over_one_mebibyte_is_too_large_and_both_sizes_are_named() {
    let of = |bytes: usize| Event { id: String::new(), ..json(&format!("\"{}\"", "x".repeat(bytes))) };
    let found = validate(&[of(10), of(MAX_ENVELOPE_BYTES)], None, &Limits::default()).unwrap_err();
    let text = found.to_string();
    let Invalid::TooLarge(TooLarge { field, actual, limit }) = found else { unreachable!("{text}") };
    assert_eq!((field.as_str(), limit), ("events[1]", MAX_ENVELOPE_BYTES));
    assert_eq!(text, format!("events[1] is {actual} bytes, over the limit of 1048576 bytes"));
}

#[test]
fn the_size_limit_is_exact_and_covers_the_longest_source() {
    let of = |bytes: usize| json(&format!("\"{}\"", "x".repeat(bytes)));
    let size = |bytes: usize| accepted(of(bytes)).envelope_text(&source(&"s".repeat(63)), LONGEST_NOW).len();
    let fits = MAX_ENVELOPE_BYTES - size(0);
    assert_eq!(size(fits), MAX_ENVELOPE_BYTES);
    let found = validate(&[of(fits + 1)], None, &Limits::default());
    assert!(
        matches!(found, Err(Invalid::TooLarge(TooLarge { actual, .. })) if actual == MAX_ENVELOPE_BYTES + 1)
    );
}

#[test]
fn broken_rules_are_told_before_sizes() {
    let huge = Event { r#type: String::new(), ..json(&format!("\"{}\"", "x".repeat(MAX_ENVELOPE_BYTES))) };
    assert_eq!(only(huge).0, "events[0].type");
}

#[test]
fn binary_data_counts_with_its_base64_length() {
    let of = |bytes: usize| Event { data: Some(Data::Binary(vec![0; bytes])), ..event() };
    accepted(of(MAX_ENVELOPE_BYTES / 4 * 3 - 512));
    let found = validate(&[of(MAX_ENVELOPE_BYTES / 4 * 3)], None, &Limits::default());
    assert!(matches!(found, Err(Invalid::TooLarge(_))));
}

#[test]
fn numbers_count_with_their_digits_written_out() {
    // 250,000 bytes as sent; jsonb would make 5 MB of them.
    let text = format!("[{}1e99]", "1e99,".repeat(50_000));
    let found = validate(&[json(&text)], None, &Limits::default());
    assert!(
        matches!(found, Err(Invalid::TooLarge(TooLarge { actual, .. })) if actual > 5_000_000 && actual < 5_100_000)
    );
}

#[test]
fn all_violations_of_a_request_are_told_at_once() {
    let worst = Event {
        id: "no".into(),
        r#type: "no no".into(),
        subject: "\n".into(),
        data: Some(Data::Json("{".into())),
        ..Event::default()
    };
    let fields: Vec<_> = violations(&[event(), worst]).into_iter().map(|(field, _)| field).collect();
    assert_eq!(fields, ["events[1].id", "events[1].type", "events[1].subject", "events[1].json"]);
}

#[test]
fn a_long_list_of_violations_is_bounded_and_says_how_many_more() {
    let bad = Event { id: "no".into(), subject: "\n".into(), ..Event::default() };
    let Err(Invalid::Violations(found)) = validate(&vec![bad; 1_000], None, &Limits::default()) else {
        unreachable!("three rules are broken a thousand times")
    };
    assert_eq!(found.total(), 3_000);
    assert!(found.listed().len() <= MAX_LISTED);
    let bytes: usize = found.listed().iter().map(|v| v.field.len() + v.description.len()).sum();
    assert!(bytes <= MAX_LISTED_BYTES);
    let text = found.to_string();
    assert!(text.len() <= MAX_MESSAGE_BYTES, "{}", text.len());
    assert!(text.starts_with("3000 violations: events[0].id "), "{text}");
    assert!(text.ends_with(" more"), "{text}");
}

#[test]
fn lists_of_two_judges_become_one() {
    let mut both = refused(Event { r#type: String::new(), ..event() });
    let mut mine = super::Violations::default();
    assert!(mine.is_empty());
    mine.push("service", "must not be empty");
    mine.merge(std::mem::take(&mut both));
    assert_eq!(mine.to_string(), "2 violations: service must not be empty; events[0].type must not be empty");
}

#[test]
fn service_names_are_dns_labels_that_begin_with_a_letter() {
    for good in ["a", "orders", "orders-2", &"a".repeat(63)] {
        assert_eq!(service_name_problem(good), None, "{good}");
    }
    for bad in ["", "Orders", "1orders", "-orders", "or.ders", "or_ders", "örders", "a\0", &"a".repeat(64)] {
        assert!(service_name_problem(bad).is_some(), "{bad}");
        assert!(!is_reserved_service(bad));
    }
    for reserved in ["holdfast", "payload", "holdfast-control"] {
        assert_eq!(service_name_problem(reserved), Some("is a reserved name"));
        assert!(is_reserved_service(reserved));
    }
}

#[test]
fn a_hold_needs_an_operation_of_1_to_255_bytes_without_control_characters_and_no_negative_generation() {
    let fields = |operation_id: &str, generation: i64| {
        let hold = Hold { operation_id: operation_id.into(), generation };
        match validate(&[event()], Some(&hold), &Limits::default()) {
            Ok(_) => Vec::new(),
            Err(Invalid::Violations(violations)) => {
                violations.listed().iter().map(|one| one.field.clone()).collect()
            }
            Err(other) => unreachable!("{other}"),
        }
    };
    for (operation_id, generation) in [("o", 0), (&"o".repeat(255), i64::MAX), ("Größe / 17", 1)] {
        assert!(fields(operation_id, generation).is_empty(), "{operation_id} {generation}");
    }
    for operation_id in ["", "a\0b", "a\nb", "a\u{ffff}", &"o".repeat(256)] {
        assert_eq!(fields(operation_id, 1), ["hold.operation_id"], "{operation_id:?}");
    }
    assert_eq!(fields("", -1), ["hold.operation_id", "hold.generation"], "all at once");
}
