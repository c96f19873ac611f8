//! The broker away is nobody's fault: nothing is claimed, no attempt is burnt, verdicts are written all the same.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, keyed},
    reconcile::reconcile,
    scene::Scene,
    wait::LONG,
};

use super::{expect_broker_trouble, row, row_is};

#[tokio::test]
async fn the_broker_away_burns_no_attempts_and_events_go_out_after_it() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().away().await;
    scene.logs.wait_for("broker connection lost").await;

    let events = [keyed("order.placed", "k"), keyed("order.paid", "k"), event("order.shipped")];
    scene.commit_all(&events).await;

    for one in &events {
        let waiting = row_is(&scene.database, &one.id, "resolved", |row| row.resolved).await;
        assert_eq!((waiting.attempts, waiting.generation, waiting.claimed), (0, 0, false), "{waiting:?}");
    }
    scene.logs.wait_for("broker cannot be reached").await;
    scene.broker_proxy().pass().await;
    for one in &events {
        scene.client.wait_for_state(&one.id, EventState::Published).await;
        let sent = row(&scene.database, &one.id).await;
        assert_eq!((sent.attempts, sent.generation), (0, 1), "{sent:?}");
    }
    scene.end(4).await;
}

#[tokio::test]
async fn the_resolver_writes_both_verdicts_while_the_broker_is_away() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    scene.broker_proxy().away().await;
    let (kept, lost) = (event("order.placed"), event("order.placed"));
    scene.roll_back_all(std::slice::from_ref(&lost)).await;

    scene.commit(&kept).await;

    row_is(&scene.database, &kept.id, "resolved", |row| row.resolved).await;
    let census = reconcile(&scene.database, 2).await;
    assert_eq!(census.published, 0, "{census:?}");
    scene.broker_proxy().pass().await;
    scene.consumer.wait_for_ids(&[kept.id], LONG).await;
    let census = scene.end(2).await;
    assert_eq!((census.rows, census.published), (1, 1), "{census:?}");
}

#[tokio::test]
async fn a_connection_lost_between_publish_and_confirm_is_no_failed_attempt() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let id = scene.commit(&event("order.placed")).await;
    // It is with the broker, and only the confirm is missing.
    scene.consumer.wait_for_ids(&[&id], LONG).await;

    scene.broker_proxy().cut().await;
    scene.broker_proxy().pass().await;

    scene.client.wait_for_state(&id, EventState::Published).await;
    let sent = row(&scene.database, &id).await;
    assert_eq!((sent.attempts, sent.generation), (0, 2), "sent twice, failed never: {sent:?}");
    scene.end(2).await;
}
