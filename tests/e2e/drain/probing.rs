//! Events that no queue takes are probed by type: one publish a back-off interval, whatever their number (design, section 4).

use std::collections::HashMap;

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::keyed,
    scene::{Scene, Stage},
    wait::{self, LONG},
};
use sqlx::Connection as _;

use super::{MISSED, bind, hold_drain_lock, row_is, unbind};

const RETURNED: &str = "holdfast_unroutable_total";

/// `keys` keys with `each` events of a type; the drain looks at all of them together.
async fn put_many(stage: &Stage, event_type: &str, keys: i64, each: i64) {
    let holder = hold_drain_lock(&stage.database).await;
    stage
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key)
             SELECT '{event_type}', '{{}}', '{event_type}-' || n % {keys}
             FROM generate_series(1, {keys} * {each}) AS n ORDER BY n"
        ))
        .await;
    holder.close().await.unwrap();
}

async fn count(stage: &Stage, of: &str) -> i64 {
    stage.database.one(&format!("SELECT count(*) FROM holdfast.event_outbox WHERE {of}")).await
}

async fn counted(stage: &Stage, of: &str, wanted: i64) {
    wait::until_equal(&format!("rows with {of}"), LONG, wanted, || count(stage, of)).await;
}

/// Waiting rows of a type that are tried again by themselves.
fn probes(event_type: &str) -> String {
    format!(
        "event_type = '{event_type}' AND unroutable AND (next_attempt_at < 'infinity' OR claimed_at IS NOT NULL)"
    )
}

#[tokio::test]
async fn events_of_two_types_that_no_queue_takes_cost_one_publish_each_and_then_those_of_one_probe_a_type() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    put_many(&scene, "nobody.a", 150, 1).await;
    put_many(&scene, "nobody.b", 150, 1).await;
    counted(&scene, "attempts > 0", 300).await;

    for probe in ["nobody.a", "nobody.b"] {
        let tried = format!("event_type = '{probe}' AND attempts >= 4");
        wait::until(&format!("{probe} to be probed"), LONG, || async {
            let seen = count(&scene, &tried).await;
            if seen > 0 { Ok(()) } else { Err(seen) }
        })
        .await;
        assert_eq!(count(&scene, &probes(probe)).await, 1, "{probe}");
        let again = format!("event_type = '{probe}' AND attempts > 1");
        assert_eq!(count(&scene, &again).await, 1, "{probe} was probed by one row");
    }

    // As many returns as attempts: nothing else was published, however often the drainer came by.
    wait::until("the returns to be written down", LONG, || async {
        let returns = scene.server.metric(RETURNED, "orders");
        let attempts: i64 = scene.database.one("SELECT sum(attempts) FROM holdfast.event_outbox").await;
        if (returns - attempts as f64).abs() < f64::EPSILON { Ok(()) } else { Err((returns, attempts)) }
    })
    .await;
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn once_a_queue_takes_a_type_all_its_events_go_out_in_key_order_and_another_type_is_not_disturbed() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    put_many(&scene, "nobody.a", 50, 3).await;
    put_many(&scene, "nobody.b", 50, 3).await;
    // The fronts; the others wait behind them.
    counted(&scene, "attempts > 0", 100).await;

    bind(&scene, "nobody.a").await;

    counted(&scene, "event_type = 'nobody.a' AND published_at IS NOT NULL", 150).await;
    assert_eq!(count(&scene, "event_type = 'nobody.b' AND published_at IS NOT NULL").await, 0);
    counted(&scene, "event_type = 'nobody.b' AND next_attempt_at = 'infinity'", 49).await;
    assert_eq!(count(&scene, &probes("nobody.b")).await, 1);
    bind(&scene, "nobody.b").await;
    counted(&scene, "published_at IS NOT NULL", 300).await;

    let mut connection = scene.database.connect().await;
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT id::text, ordering_key FROM holdfast.event_outbox ORDER BY seq")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    connection.close().await.unwrap();
    let key_of: HashMap<&String, &String> = rows.iter().map(|(id, key)| (id, key)).collect();
    let by_key = |ids: Vec<&String>| {
        let mut by_key: HashMap<String, Vec<String>> = HashMap::new();
        for id in ids {
            by_key.entry(key_of[id].clone()).or_default().push(id.clone());
        }
        by_key
    };
    let seen = super::first_deliveries(scene.consumer.ids());
    assert_eq!(by_key(seen.iter().collect()), by_key(rows.iter().map(|(id, _)| id).collect()));
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(300).await;
}

#[tokio::test]
async fn a_fresh_event_that_is_taken_sends_those_of_its_type_that_wait() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    put_many(&scene, "nobody.a", 30, 1).await;
    counted(&scene, "attempts > 0 AND claimed_at IS NULL", 30).await;
    // The probe's time is far away.
    counted(&scene, &probes("nobody.a"), 1).await;
    wait::until("the probe to be put off", LONG, || async {
        let put_off = "WITH put_off AS (UPDATE holdfast.event_outbox SET next_attempt_at = now() + interval '1 hour'
                           WHERE unroutable AND next_attempt_at < 'infinity' AND claimed_at IS NULL RETURNING 1)
                       SELECT count(*) FROM put_off";
        match scene.database.one::<i64>(put_off).await {
            1 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    bind(&scene, "nobody.a").await;

    let fresh = scene.commit(&keyed("nobody.a", "fresh")).await;

    scene.client.wait_for_state(&fresh, EventState::Published).await;
    counted(&scene, "published_at IS NOT NULL", 31).await;
    scene.end(31).await;
}

#[tokio::test]
async fn a_probe_that_vanished_is_replaced() {
    let scene = Scene::builder().set("drain", "sweep", "\"200ms\"").start().await;
    unbind(&scene).await;
    put_many(&scene, "nobody.a", 30, 1).await;
    counted(&scene, "attempts > 0 AND claimed_at IS NULL", 30).await;

    for left in [29_i64, 28] {
        // By hand, whenever it is not in flight.
        let vanish = "WITH gone AS (DELETE FROM holdfast.event_outbox WHERE unroutable AND next_attempt_at < 'infinity'
                                        AND claimed_at IS NULL RETURNING 1)
                      SELECT count(*) FROM gone";
        wait::until("the probe to vanish", LONG, || async {
            match scene.database.one::<i64>(vanish).await {
                1 => Ok(()),
                other => Err(other),
            }
        })
        .await;
        counted(&scene, "unroutable", left).await;
    }

    bind(&scene, "nobody.a").await;
    counted(&scene, "published_at IS NOT NULL", 28).await;
    scene.end(28).await;
}

#[tokio::test]
async fn where_they_hold_nobody_back_unroutable_events_are_probed_by_type_all_the_same() {
    let scene = Scene::builder().set("services.orders", "unroutable_blocks", "false").start().await;
    unbind(&scene).await;
    put_many(&scene, "nobody.a", 5, 6).await;
    // Each of them was tried; none holds the next one back.
    counted(&scene, "attempts > 0 AND claimed_at IS NULL", 30).await;
    counted(&scene, "next_attempt_at = 'infinity'", 29).await;
    let passed = scene.commit(&keyed("order.placed", "nobody.a-1")).await;
    row_is(&scene.database, &passed, "published", |row| row.published).await;

    bind(&scene, "nobody.a").await;

    counted(&scene, "published_at IS NOT NULL", 31).await;
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(31).await;
}
