//! Replays: what is planned is what is sent, gently, whoever dies (design, section 8).

mod acts;
mod engine;
mod plan;
mod plans;
mod refused;
mod run;

use std::collections::BTreeMap;

use holdfast_proto::v1::{Event, Replay};
use holdfast_tests::{
    consumer::Delivery,
    database::Database,
    scene::{Scene, Server},
    wait::{self, LONG},
};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

/// Commits events and waits until they are published.
async fn published<S: Server>(scene: &Scene<S>, events: &[Event]) {
    scene.commit_all(events).await;
    let all = "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NULL";
    wait::until_equal("events that are not published", LONG, 0_i64, || scene.database.one(all)).await;
}

/// Puts in events that were published an hour ago, by hand; their ids, in the order of staging.
pub(crate) async fn put_published(database: &Database, count: i32, event_type: &str) -> Vec<String> {
    let sql = format!(
        "INSERT INTO holdfast.event_outbox
             (event_type, envelope, admitted_at, claim_generation, created_at, published_at, first_published_at, last_published_at)
         SELECT '{event_type}', jsonb_build_object('n', n), at, 1, at, at, at, at
         FROM generate_series(1, {count}) AS n, LATERAL (SELECT now() - interval '30 minutes' + n * interval '1 ms' AS at) AS t
         RETURNING id"
    );
    let mut connection = database.connect().await;
    let ids: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
    ids.iter().map(Uuid::to_string).collect()
}

/// How often each event came with the header of this replay.
pub(crate) fn replayed(deliveries: &[Delivery], replay: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for delivery in deliveries.iter().filter(|one| one.header("x-holdfast-replay").as_deref() == Some(replay))
    {
        *counts.entry(delivery.id.clone()).or_default() += 1;
    }
    counts
}

/// Each once.
fn once<I: ToString>(ids: &[I]) -> BTreeMap<String, usize> {
    ids.iter().map(|id| (id.to_string(), 1)).collect()
}

/// matched, done, failed, expired, pruned, not published.
fn books(replay: &Replay) -> [i64; 6] {
    [replay.matched, replay.done, replay.failed, replay.expired, replay.pruned, replay.not_published]
}

/// Rows that are still to be sent.
async fn lane(database: &Database) -> i64 {
    database.one("SELECT count(*) FROM holdfast.replay_row WHERE error IS NULL").await
}
