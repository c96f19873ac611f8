//! Holds: events that wait for their operation (design, section 5; ADR-039).

mod client;
mod decisions;
mod list;
mod million;
mod order;
mod plans;
mod races;
mod refusals;
mod slices;
mod watch;

use holdfast_tests::database::Database;

/// The class of the pairs' advisory locks.
const PAIR_LOCKS: i64 = 1_213_156_421;

/// `count` held rows of a pair by SQL, of one type and each with a key of its own, or all of one; their transactions have
/// committed.
pub(crate) async fn put_held(
    database: &Database,
    operation_id: &str,
    generation: i64,
    count: i64,
    key: Option<&str>,
) {
    let key = key.map_or_else(|| "'k-' || n".to_owned(), |key| format!("'{key}'"));
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox
                 (id, event_type, envelope, ordering_key, hold_operation_id, hold_generation)
             SELECT id, 'order.held', jsonb_build_object('id', id::text, 'n', n), {key}, '{operation_id}', {generation}
             FROM (SELECT holdfast.uuid_v7() AS id, n FROM generate_series(1, {count}) AS n) AS made ORDER BY n"
        ))
        .await;
}

/// How many rows still bear a hold.
async fn held(database: &Database) -> i64 {
    database.one("SELECT count(*) FROM holdfast.event_outbox WHERE hold_operation_id IS NOT NULL").await
}
