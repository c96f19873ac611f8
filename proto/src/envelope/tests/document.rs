//! The CloudEvents document that a valid event becomes.

use std::collections::BTreeMap;

use prost_types::Timestamp;
use serde_json::json as value;
use time::macros::datetime;
use uuid::Uuid;

use super::super::{Limits, source, validate};
use super::{Data, Event, ID, NOW, accepted, document, event, json};

#[test]
fn the_smallest_event_has_the_required_attributes_and_no_other() {
    let valid = accepted(event());
    assert_eq!(
        valid.envelope_text("/holdfast/orders", NOW),
        format!(
            r#"{{"specversion":"1.0","source":"/holdfast/orders","time":"2026-11-30T12:00:00.123456Z","id":"{ID}","type":"order.placed"}}"#
        )
    );
    assert_eq!((valid.subject, valid.aggregate_id, valid.ordering_key), (None, None, None));
    assert_eq!((valid.traceparent, valid.tracestate), (None, None));
}

#[test]
fn every_field_has_its_place_in_the_document() {
    let full = Event {
        id: ID.to_uppercase(),
        r#type: "order.placed".into(),
        subject: "o-1".into(),
        time: Some(Timestamp { seconds: 0, nanos: 5_000_000 }),
        data_content_type: "application/vnd.acme+json".into(),
        ordering_key: Some("k".into()),
        traceparent: "00-a-b-01".into(),
        tracestate: "v=1".into(),
        correlation_id: "c".into(),
        causation_id: "d".into(),
        extensions: BTreeMap::from([("mine".into(), "x".into()), ("blank".into(), String::new())]),
        data: Some(Data::Json(r#"{"total":"9.90"}"#.into())),
    };
    let valid = accepted(full);
    assert_eq!(
        document(&valid),
        value!({
            "specversion": "1.0", "id": ID, "source": "/holdfast/orders", "type": "order.placed", "subject": "o-1",
            "time": "1970-01-01T00:00:00.005Z", "datacontenttype": "application/vnd.acme+json",
            "data": {"total": "9.90"}, "traceparent": "00-a-b-01", "tracestate": "v=1",
            "correlationid": "c", "causationid": "d", "mine": "x", "blank": "",
        })
    );
    assert_eq!(valid.id.to_string(), ID);
    assert_eq!(valid.traceparent.as_deref(), Some("00-a-b-01"));
    assert_eq!(valid.tracestate.as_deref(), Some("v=1"));
}

#[test]
fn an_event_without_id_gets_a_version_7_one_of_its_own() {
    let blank = Event { id: String::new(), ..event() };
    let valid = validate(&[blank.clone(), blank], None, &Limits::default()).unwrap();
    assert_ne!(valid[0].id, valid[1].id);
    assert_eq!(valid[0].id.get_version_num(), 7);
    assert_eq!(document(&valid[0])["id"], valid[0].id.to_string());
}

#[test]
fn the_key_is_the_subject_unless_one_is_given_and_an_empty_one_counts() {
    let of = |subject: &str, key: Option<&str>| {
        let event = Event { subject: subject.into(), ordering_key: key.map(Into::into), ..event() };
        accepted(event).ordering_key
    };
    assert_eq!(of("", None), None);
    assert_eq!(of("s", None).as_deref(), Some("s"));
    assert_eq!(of("s", Some("k")).as_deref(), Some("k"));
    assert_eq!(of("s", Some("")).as_deref(), Some(""));
    assert_eq!(of("", Some("")).as_deref(), Some(""));
}

#[test]
fn a_subject_that_is_a_uuid_is_the_aggregate_id() {
    let of = |subject: &str| accepted(Event { subject: subject.into(), ..event() });
    assert_eq!(of(ID).aggregate_id, Uuid::parse_str(ID).ok());
    assert_eq!(of("o-1").aggregate_id, None);
    let bare = ID.replace('-', "");
    assert_eq!(of(&bare).aggregate_id, None);
    assert_eq!(of(&bare).subject.as_deref(), Some(bare.as_str()));
}

#[test]
fn json_data_is_put_in_as_it_was_sent() {
    let text = " {\"b\" : 1.50, \"a\":[ 1e2 ]}\n";
    let composed = accepted(json(text)).envelope_text("/holdfast/orders", NOW);
    assert!(composed.contains(&format!("\"data\":{text}}}")), "{composed}");
    assert_eq!(document(&accepted(json(text)))["datacontenttype"], "application/json");
}

#[test]
fn binary_data_survives_byte_for_byte() {
    use base64::Engine as _;
    for bytes in [vec![], vec![0], vec![0, 255, 10], (0..=255).collect::<Vec<u8>>()] {
        let document = document(&accepted(Event { data: Some(Data::Binary(bytes.clone())), ..event() }));
        assert_eq!(document["datacontenttype"], "application/octet-stream");
        assert!(document.get("data").is_none());
        let text = document["data_base64"].as_str().unwrap();
        assert_eq!(base64::engine::general_purpose::STANDARD.decode(text).unwrap(), bytes);
    }
}

#[test]
fn times_are_written_in_utc_and_the_events_own_wins() {
    let of = |time, now| {
        let text = accepted(Event { time, ..event() }).envelope_text("/holdfast/orders", now);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["time"].clone()
    };
    let own = Some(Timestamp { seconds: 253_402_300_799, nanos: 999_999_999 });
    assert_eq!(of(own, NOW), "9999-12-31T23:59:59.999999999Z");
    assert_eq!(of(Some(Timestamp { seconds: -62_135_596_800, nanos: 0 }), NOW), "0001-01-01T00:00:00Z");
    assert_eq!(of(None, datetime!(2026-11-30 12:00:00 +2)), "2026-11-30T10:00:00Z");
}

#[test]
fn a_document_for_an_insert_lacks_the_time_that_the_statement_adds_and_nothing_else() {
    let own = Some(Timestamp { seconds: 1, nanos: 0 });
    for (time, needed) in [(None, true), (own, false)] {
        let valid = accepted(Event { time, ..json(r#"{"n":1}"#) });
        let mut whole = document(&valid);
        if needed {
            whole.as_object_mut().unwrap().remove("time").unwrap();
        }
        let text = valid.envelope_text_for_insert("/holdfast/orders");
        assert_eq!(valid.needs_time(), needed);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), whole);
    }
}

#[test]
fn the_source_is_made_of_the_service() {
    assert_eq!(source("orders"), "/holdfast/orders");
}

#[test]
fn a_hostile_source_stays_a_string() {
    let text = accepted(event()).envelope_text("\",\"id\":\"x\\", NOW);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["source"], "\",\"id\":\"x\\");
    assert_eq!(document["id"], ID);
}
