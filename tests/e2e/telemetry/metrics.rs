//! The admin port's metrics: every one is documented, and they say what happened (design, section 14).

use std::{collections::BTreeSet, fs, path::Path};

use holdfast_proto::v1::EventState;
use holdfast_server::{
    db::{self, Pool},
    metrics::Metrics,
    outbox::depth::{Depth, EXACT, Options, Report},
};
use holdfast_tests::{
    client::{event, ids, keyed},
    database::Database,
    http,
    logs::Logs,
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    wait::{self, LONG},
};

/// Names and types of a text in Prometheus' format.
fn exported(text: &str) -> BTreeSet<(String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Names and types of the documentation's table.
fn documented() -> BTreeSet<(String, String)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(file).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let name = cells.next()?.trim().trim_end_matches('`').to_owned();
        Some((name, cells.next()?.trim().to_owned()))
    });
    rows.collect()
}

#[tokio::test]
async fn every_metric_of_a_server_under_load_is_documented() {
    let scene = Scene::start().await;
    let events: Vec<_> = (0..20).map(|n| keyed("order.placed", &format!("k-{}", n % 4))).collect();
    scene.commit_all(&events).await;
    scene.roll_back_all(&[event("order.placed")]).await;
    scene.client.stage_now(&[event("order.shipped")]).await;
    scene.client.get("no id").await.unwrap_err();
    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    let measured =
        |server: &ServerInProcess| server.metric("holdfast_outbox_measured_timestamp_seconds", SERVICE);
    wait::until("the outbox to be measured", LONG, || async {
        let seen = measured(&scene.server);
        if seen > 0.0 { Ok(()) } else { Err(seen) }
    })
    .await;

    let (status, head, text) = http::get(scene.server.admin_address(), "/metrics").await;

    assert_eq!(status, 200);
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    let (exported, documented) = (exported(&text), documented());
    let missing: Vec<_> = exported.difference(&documented).collect();
    assert!(missing.is_empty(), "exported and not documented: {missing:?}");
    for name in ["holdfast_publish_lag_seconds", "holdfast_table_size_bytes", "process_open_fds"] {
        assert!(exported.iter().any(|(one, _)| one == name), "{name} in {text}");
    }
    scene.end(22).await;
}

#[tokio::test]
async fn what_was_staged_and_published_is_counted_by_type_and_timed() {
    let scene = Scene::start().await;
    let events = [event("order.placed"), event("order.placed"), event("order.paid")];
    scene.commit_all(&events).await;
    for one in &events {
        scene.client.wait_for_state(&one.id, EventState::Published).await;
    }

    let metric = |name: &str, labels: &str| scene.server.metric(name, labels) as i64;
    assert_eq!(metric("holdfast_staged_total", "event_type=\"order.placed\",outcome=\"staged\""), 2);
    assert_eq!(metric("holdfast_staged_total", "event_type=\"order.paid\",outcome=\"staged\""), 1);
    wait::until_equal("published events", LONG, 3, || async { metric("holdfast_published_total", SERVICE) })
        .await;
    assert_eq!(metric("holdfast_published_total", "event_type=\"order.placed\""), 2);
    assert_eq!(metric("holdfast_publish_lag_seconds_count", SERVICE), 3);
    assert!(scene.server.metric("holdfast_publish_lag_seconds_sum", SERVICE) > 0.0);
    assert_eq!(metric("holdfast_stage_duration_seconds_count", SERVICE), 1);
    assert!(metric("holdfast_pool_acquire_seconds_count", SERVICE) > 0);
    assert!((1..=4).contains(&metric("holdfast_pool_connections_open", SERVICE)));
    assert_eq!(metric("holdfast_pool_connections_configured", SERVICE), 4);
    assert_eq!(metric("holdfast_connections_configured", ""), 8);
    assert_eq!(metric("holdfast_broker_connections_total", ""), 1);
    assert_eq!(metric("holdfast_build_info", env!("CARGO_PKG_VERSION")), 1);
    assert!(metric("process_resident_memory_bytes", "") > 1 << 20);
    scene.end(3).await;
}

/// Measures without a server.
async fn measured(database: &Database) -> Report {
    Logs::capture();
    let options = db::Options {
        url: database.url(),
        max_connections: 2,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    let metrics = Metrics::new(Default::default()).unwrap().service(SERVICE);
    let (depth, _) = Depth::new(Pool::new(&options).unwrap(), Options::default(), metrics.depth);
    depth.run_once().await.unwrap()
}

#[tokio::test]
async fn rows_are_measured_by_state_with_the_age_of_the_oldest() {
    let database = Database::service().await;
    let insert =
        "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key, created_at, resolved_at";
    let row = "SELECT 'order.placed', '{}', 'k-' || n % 2, now() - interval '1 hour', now() - interval '20 minutes'";
    database
        .run(&format!(
            "{insert}, published_at) {row}, now() FROM generate_series(1, 9) AS n;
             {insert}, ticket) SELECT 't', '{{}}', NULL, now() - interval '1 day', NULL, 4711;
             {insert}, hold_operation_id, hold_generation) {row}, 'op', 1 FROM generate_series(1, 2) AS n;
             {insert}, parked_at) {row}, now() FROM generate_series(1, 3) AS n;
             {insert}, claimed_at) {row}, now() FROM generate_series(1, 4) AS n;
             {insert}, admitted_at, next_attempt_at, unroutable) {row}, now(), 'infinity', true FROM generate_series(1, 5) AS n;
             {insert}, admitted_at, next_attempt_at) {row}, now(), now() FROM generate_series(1, 6) AS n;
             {insert}, admitted_at) {row}, now() FROM generate_series(1, 7) AS n;
             {insert}) {row} FROM generate_series(1, 8) AS n;
             {insert}) SELECT 't', '{{}}', NULL, 'infinity', 'infinity'"
        ))
        .await;

    let report = measured(&database).await;

    let rows: Vec<_> = report.states.iter().map(|(state, of)| (*state, of.rows)).collect();
    let expected = [
        ("aside", 7),
        ("backing_off", 6),
        ("held", 2),
        ("in_flight", 4),
        ("parked", 3),
        ("pending", 9),
        ("unresolved", 1),
        ("unroutable", 5),
    ];
    assert_eq!(rows, expected);
    assert!((3_600..4_000).contains(&report.states["pending"].oldest_seconds), "{report:?}");
    assert!((86_400..87_000).contains(&report.states["unresolved"].oldest_seconds), "{report:?}");
    // All that is late but for what is held or open, and what has no time.
    assert_eq!((report.beyond_grace, report.keys_blocked, report.estimated), (33, 2, false));
    assert!(report.tables["event_outbox"].0 > 0 && report.tables.contains_key("ticket"), "{report:?}");
}

#[tokio::test]
async fn more_rows_than_are_counted_are_estimated() {
    let database = Database::service().await;
    let rows = 4 * EXACT;
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT 'order.placed', '{{}}' FROM generate_series(1, {rows})"
        ))
        .await;
    database.run("ANALYZE holdfast.event_outbox").await;

    let report = measured(&database).await;

    assert!(report.estimated);
    let seen = report.rows("pending");
    assert!((rows * 9 / 10..=rows * 11 / 10).contains(&seen), "{seen} of {rows}");
}
