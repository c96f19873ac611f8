//! The content hash: equal for the same content, different for any other.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use prost_types::Timestamp;

use super::super::{Limits, source, validate};
use super::{Data, Event, ID, accepted, event};
use crate::v1::Hold;

fn hash(event: Event) -> [u8; 32] {
    accepted(event).content_hash
}

fn extended(pairs: &[(&str, &str)]) -> Event {
    let extensions = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Event { extensions, ..event() }
}

#[test]
fn each_field_changes_the_hash() {
    let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
    let variants = [
        event(),
        Event { id: String::new(), ..event() },
        Event { id: "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a12".into(), ..event() },
        Event { r#type: "x".into(), ..event() },
        Event { subject: "x".into(), ..event() },
        Event { time: at(0, 0), ..event() },
        Event { time: at(1, 0), ..event() },
        Event { time: at(0, 1), ..event() },
        Event { data_content_type: "a/b".into(), ..event() },
        Event { data: Some(Data::Json("1".into())), ..event() },
        Event { data: Some(Data::Json(" 1".into())), ..event() },
        Event { data: Some(Data::Binary(vec![])), ..event() },
        Event { data: Some(Data::Binary(b"1".to_vec())), ..event() },
        Event { ordering_key: Some(String::new()), ..event() },
        Event { ordering_key: Some("x".into()), ..event() },
        Event { traceparent: "x".into(), ..event() },
        Event { tracestate: "x".into(), ..event() },
        Event { correlation_id: "x".into(), ..event() },
        Event { causation_id: "x".into(), ..event() },
        extended(&[("a", "")]),
        extended(&[("a", "x")]),
        extended(&[("ax", "")]),
        extended(&[("b", "x")]),
        extended(&[("a", "b"), ("c", "d")]),
        extended(&[("a", "bc"), ("d", "")]),
    ];
    let count = variants.len();
    let hashes: HashSet<_> = variants.into_iter().map(hash).collect();
    assert_eq!(hashes.len(), count);
}

#[test]
fn a_default_that_is_spelt_out_is_other_content() {
    let json = Event { data: Some(Data::Json("1".into())), ..event() };
    let spelt = Event { data_content_type: "application/json".into(), ..json.clone() };
    assert_ne!(hash(json), hash(spelt));
}

#[test]
fn the_order_of_the_extensions_and_the_case_of_the_id_do_not_change_it() {
    assert_eq!(hash(extended(&[("a", "1"), ("b", "2")])), hash(extended(&[("b", "2"), ("a", "1")])));
    assert_eq!(hash(event()), hash(Event { id: ID.to_uppercase(), ..event() }));
}

#[test]
fn an_event_whose_id_is_minted_hashes_alike_each_time() {
    let blank = || Event { id: String::new(), ..event() };
    assert_eq!(hash(blank()), hash(blank()));
}

#[test]
fn a_hold_is_part_of_the_content() {
    let with = |hold: Option<Hold>| {
        validate(&[event()], hold.as_ref(), &Limits::default()).map(|mut v| v.remove(0).content_hash).unwrap()
    };
    let hold = |operation: &str, generation| Some(Hold { operation_id: operation.into(), generation });
    let hashes: HashSet<_> =
        [None, hold("0", 0), hold("a", 0), hold("a", 1), hold("b", 1)].into_iter().map(with).collect();
    assert_eq!(hashes.len(), 5);
}

#[test]
fn the_layout_of_the_hash_never_changes() {
    let full = Event {
        subject: "o-1".into(),
        time: Some(Timestamp { seconds: 1, nanos: 2 }),
        data: Some(Data::Json("{}".into())),
        ordering_key: Some("k".into()),
        extensions: BTreeMap::from([("a".into(), "b".into())]),
        ..event()
    };
    let valid = accepted(full);
    let hex = valid.content_hash.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    // Stored in every outbox: a release that changes this turns all retries into conflicts.
    assert_eq!(hex, "689ecb3553ea5c0332f5c3969858bfbb34056e5390edf8c95b7fbbb5ee44a7f9");
    // Not of the service: nothing of it went in.
    assert_ne!(valid.envelope_text(&source("a"), super::NOW), valid.envelope_text(&source("b"), super::NOW));
}
