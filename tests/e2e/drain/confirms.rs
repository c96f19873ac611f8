//! Confirms that do not come, and exchanges that are not there (pitfalls, "RabbitMQ and lapin").

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::event,
    scene::Scene,
    wait::{self, LONG},
};
use serde_json::json;

use super::{bind, delete_exchange, exchange_is_there, row, row_is};

#[tokio::test]
async fn a_confirm_that_does_not_come_costs_an_attempt_and_the_event_goes_out_later() {
    let scene =
        Scene::builder().with_broker_proxy().set("broker", "confirm_timeout", "\"300ms\"").start().await;
    // The channel is open and the exchange was looked at.
    let first = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&first, EventState::Published).await;
    scene.broker_proxy().stall_replies();

    let id = scene.commit(&event("order.placed")).await;

    let failed = row_is(&scene.database, &id, "timed out", |row| row.attempts > 0 && !row.claimed).await;
    assert!(!failed.published && failed.backing_off && failed.error.contains("no confirm"), "{failed:?}");
    assert!(scene.server.metric("holdfast_publish_failures_total", "timed_out") >= 1.0);
    scene.broker_proxy().pass().await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    assert_eq!(row(&scene.database, &id).await.error, "");
    scene.end(2).await;
}

#[tokio::test]
async fn a_deleted_exchange_is_declared_again_and_nothing_is_lost() {
    let scene = Scene::start().await;
    let first = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&first, EventState::Published).await;
    delete_exchange(&scene.vhost).await;

    let events: Vec<_> = (0..20).map(|_| event("order.placed")).collect();
    scene.commit_all(&events).await;

    wait::until_equal("the exchange to be there", LONG, true, || exchange_is_there(&scene.vhost)).await;
    bind(&scene, "#").await;
    for one in &events {
        scene.client.wait_for_state(&one.id, EventState::Published).await;
    }
    assert_eq!(scene.consumer.ids().len(), 21, "each once");
    scene.end(21).await;
}

#[tokio::test]
async fn events_wait_without_attempts_while_the_exchange_is_missing_and_may_not_be_declared() {
    let scene = Scene::start().await;
    let first = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&first, EventState::Published).await;
    scene.logs.expect("no channel to publish on");
    // In this order: who may not configure may not delete either.
    delete_exchange(&scene.vhost).await;
    may_configure(&scene, "^$").await;

    let id = scene.commit(&event("order.placed")).await;

    scene.logs.wait_for("no channel to publish on").await;
    // Claimed and given back again and again, but not its fault.
    let waiting = row_is(&scene.database, &id, "given back twice", |row| row.generation > 2).await;
    assert_eq!((waiting.attempts, waiting.error.as_str()), (0, ""), "{waiting:?}");
    may_configure(&scene, ".*").await;
    wait::until_equal("the exchange to be there", LONG, true, || exchange_is_there(&scene.vhost)).await;
    bind(&scene, "#").await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.consumer.wait_for_ids(&[id], LONG).await;
    scene.end(2).await;
}

async fn may_configure(scene: &Scene, pattern: &str) {
    let path = format!("/api/permissions/{}/guest", scene.vhost.name());
    let rights = json!({"configure": pattern, "write": ".*", "read": ".*"});
    scene.vhost.ask("PUT", &path, Some(&rights)).await;
}
