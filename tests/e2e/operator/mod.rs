//! The operator's verbs (design, sections 4, 12 and 13): why an event is not out, and what can be done about it.

mod audited;
mod bulk;
mod pause;
mod pending;
mod plans;
mod refused;
mod retry;
mod unresolved;

use holdfast_tests::database::Database;

/// `count` rows by SQL, of one type, each with a key of its own; `more` are further columns and their values.
async fn put_many(database: &Database, event_type: &str, count: i64, more: &[(&str, &str)]) {
    let names: String = more.iter().map(|(name, _)| format!(", {name}")).collect();
    let values: String = more.iter().map(|(_, value)| format!(", {value}")).collect();
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope, ordering_key{names})
             SELECT id, '{event_type}', jsonb_build_object('id', id::text, 'type', '{event_type}'), 'many-' || n{values}
             FROM (SELECT holdfast.uuid_v7() AS id, n FROM generate_series(1, {count}) AS n) AS made ORDER BY n"
        ))
        .await;
}

/// What makes a row parked.
const PARKED: [(&str, &str); 3] =
    [("parked_at", "now()"), ("parked_reason", "'crashed'"), ("admitted_at", "now()")];

/// What makes a row back off for an hour.
const BACKING_OFF: [(&str, &str); 4] = [
    ("admitted_at", "now()"),
    ("next_attempt_at", "now() + interval '1 hour'"),
    ("attempts", "3"),
    ("last_error", "'nacked'"),
];
