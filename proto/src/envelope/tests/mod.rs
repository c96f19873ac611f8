//! Tests of the envelope's rules, one file for each kind of claim.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod document;
mod hash;
mod json;
mod properties;
mod rules;

use time::OffsetDateTime;
use time::macros::datetime;

use super::{Invalid, Limits, Valid, Violation, Violations, validate};
use crate::v1::{Event, event::Data};

/// The database's clock of these tests.
const NOW: OffsetDateTime = datetime!(2026-11-30 12:00:00.123456 UTC);

const ID: &str = "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11";

/// The smallest good event.
fn event() -> Event {
    Event { id: ID.into(), r#type: "order.placed".into(), ..Event::default() }
}

fn json(text: &str) -> Event {
    Event { data: Some(Data::Json(text.into())), ..event() }
}

fn accepted(event: Event) -> Valid {
    validate(&[event], None, &Limits::default()).unwrap().remove(0)
}

/// The violations of a request of one event.
fn refused(event: Event) -> Violations {
    match validate(&[event], None, &Limits::default()) {
        Err(Invalid::Violations(violations)) => violations,
        other => unreachable!("not refused for a rule: {other:?}"),
    }
}

/// The field and the description of the only violation of a request of one event.
#[track_caller]
fn only(event: Event) -> (String, String) {
    let violations = refused(event);
    assert_eq!(violations.total(), 1, "{violations}");
    let Violation { field, description } = violations.listed()[0].clone();
    (field, description)
}

/// The document as a strict reader sees it.
fn document(valid: &Valid) -> serde_json::Value {
    serde_json::from_str(&valid.envelope_text("/holdfast/orders", NOW)).unwrap()
}
