//! A stop ends in time whatever is stalled: what cannot be finished is released or heals by its lease, and another server
//! takes over (design, section 13: at 20 s open confirms are given up, the end by 25 s).

use std::time::Duration;

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, ids, keyed},
    reconcile::reconcile,
    scene::Scene,
    server::ServerProcess,
    wait::LONG,
};

use super::{expect_broker_trouble, expect_database_trouble, first_deliveries, only, row, row_is};

const STOP: Duration = Duration::from_secs(25);

#[tokio::test]
async fn heavy_a_stop_releases_the_claims_whose_confirms_do_not_come() {
    let mut scene = Scene::builder().with_broker_proxy().start_process().await;
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let events: Vec<_> = (0..6).map(|n| keyed("order.placed", &format!("k-{}", n % 2))).collect();
    scene.commit_all(&events).await;
    row_is(&scene.database, &events[0].id, "claimed", |row| row.claimed).await;

    scene.server.sigterm();
    assert!(scene.server.exit_status(STOP).await.success());

    for one in &events {
        let released = row(&scene.database, &one.id).await;
        assert!(!released.claimed && released.attempts == 0, "{released:?}");
    }
    reconcile(&scene.database, 7).await;
    scene.broker_proxy().away().await;
    scene.broker_proxy().pass().await;
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    for key in 0..2 {
        let of_key: Vec<String> = ids(&events).into_iter().skip(key).step_by(2).collect();
        assert_eq!(only(first_deliveries(scene.consumer.ids()), &of_key), of_key);
    }
    scene.end(7).await;
}

#[tokio::test]
async fn heavy_a_stop_ends_in_time_while_the_database_is_stalled() {
    let mut scene = Scene::builder()
        .with_database_proxy()
        .with_broker_proxy()
        .set("drain", "lease", "\"4s\"")
        .set("broker", "confirm_timeout", "\"2s\"")
        .start_process()
        .await;
    expect_database_trouble(&scene);
    expect_broker_trouble(&scene);
    scene.logs.expect("stopped with claims unsettled");
    scene.logs.expect("stopped hard after");
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let events = [keyed("order.placed", "k"), keyed("order.paid", "k"), event("order.shipped")];
    scene.commit_all(&events).await;
    row_is(&scene.database, &events[0].id, "claimed", |row| row.claimed).await;
    scene.database_proxy().stall();
    scene.broker_proxy().pass().await;

    scene.server.sigterm();
    assert!(scene.server.exit_status(STOP).await.success());

    reconcile(&scene.database, 4).await;
    scene.database_proxy().away().await;
    scene.database_proxy().pass().await;
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    let of_key = ids(&events[..2]);
    assert_eq!(only(first_deliveries(scene.consumer.ids()), &of_key), of_key);
    scene.end(4).await;
}

/// From the start of a server on a backlog to its first delivery (docs/performance.md).
const FIRST: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_first_delivery_after_a_restart_on_a_backlog_takes_less_than_five_seconds() {
    let mut scene = Scene::builder().start_process().await;
    scene.server.sigterm();
    assert!(scene.server.exit_status(STOP).await.success());
    let rows = 5_000;
    scene
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key)
             SELECT 'order.placed', jsonb_build_object('id', n, 'type', 'order.placed'), 'k-' || n % 1000
             FROM generate_series(1, {rows}) AS n"
        ))
        .await;

    let begun = std::time::Instant::now();
    let new = ServerProcess::start(&scene.config).await;
    scene.consumer.wait_for(1, LONG).await;
    let took = begun.elapsed();

    drop(scene.replace_server(new));
    assert!(took < FIRST, "the first delivery took {took:?}");
    scene.end(rows).await;
}

#[tokio::test]
async fn a_stop_waits_for_confirms_that_are_on_their_way() {
    let mut scene = Scene::builder().with_broker_proxy().start_process().await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let id = scene.commit(&event("order.placed")).await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    scene.server.sigterm();
    scene.logs.wait_for("stopping").await;

    scene.broker_proxy().pass().await;

    assert!(scene.server.exit_status(STOP).await.success());
    let stamped = row(&scene.database, &id).await;
    assert!(stamped.published && stamped.generation == 1, "{stamped:?}");
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&[before, id], marker).await;
    scene.end(3).await;
}
