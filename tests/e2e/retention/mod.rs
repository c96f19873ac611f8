//! Retention: what is kept for a time goes after it, and nothing else does (design, section 10; section 15, invariants 2 and 9).

mod cadence;
mod killed;
mod plans;
mod races;
mod servers;
mod states;
mod tombstones;

use std::time::Duration;

use holdfast_server::{
    db::{self, Pool},
    metrics::Metrics,
    retention::{Done, Options, Report, Retention, Windows},
};
use holdfast_tests::{database::Database, scene::SERVICE, wait::LONG};

const HOUR: Duration = Duration::from_secs(3_600);
const KEPT: Windows =
    Windows { outbox: Duration::from_secs(30 * 24 * 3_600), inbox: Duration::from_secs(31 * 24 * 3_600) };
const MOST: u64 = 5_000_000;

/// A replica's retention by itself, without a server whose drain would change rows.
fn replica(database: &Database, windows: Windows, most: u64) -> (Retention, Metrics) {
    let (retention, _, metrics) = replica_and_pool(database, windows, most);
    (retention, metrics)
}

/// The same, with its pool.
fn replica_and_pool(database: &Database, windows: Windows, most: u64) -> (Retention, Pool, Metrics) {
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    let metrics = Metrics::new(prometheus::Registry::new()).unwrap();
    let pool = Pool::new(&options).unwrap();
    let retention = Retention::new(pool.clone(), Options::new(windows, HOUR, most), metrics.service(SERVICE));
    (retention, pool, metrics)
}

/// What a look of it did that ran a cycle.
fn done(report: &Report) -> Done {
    let done = if let Report::Done(done) = report { Ok(done) } else { Err(report) };
    done.unwrap().clone()
}

/// The same: rows of `event_outbox` and of `hold_outcome`.
fn rows(report: &Report) -> (u64, u64) {
    let pruned = done(report).pruned;
    assert_eq!(
        pruned.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["event_outbox", "hold_outcome", "event_inbox", "job"]
    );
    (pruned[0].1, pruned[1].1)
}

/// As if the last cycle had begun so long ago.
async fn grow_due(database: &Database) {
    database.run("UPDATE holdfast.retention_cycle SET started_at = started_at - interval '67 minutes'").await;
}

/// As if whoever runs the cycle had not been heard of for long.
async fn outlive_the_lease(database: &Database) {
    database
        .run("UPDATE holdfast.retention_cycle SET leased_until = clock_timestamp() - interval '1 second'")
        .await;
}

/// `count` published rows that were staged so long ago.
async fn put_published(database: &Database, count: usize, age: &str) {
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, published_at)
             SELECT 'order.old', '{{}}', now() - interval '{age}', now() - interval '{age}'
             FROM generate_series(1, {count})"
        ))
        .await;
}

async fn count(database: &Database, table: &str) -> i64 {
    database.one(&format!("SELECT count(*) FROM holdfast.{table}")).await
}
