//! Staging needs only PostgreSQL: the broker and the control database may be away (design, section 3).

use holdfast_proto::v1::EventState;
use holdfast_tests::{client::event, reconcile::reconcile, scene::Scene, wait::LONG};

#[tokio::test]
async fn staging_and_verdicts_work_while_the_broker_is_away() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    scene.logs.expect("broker connection lost");
    scene.logs.expect("broker cannot be reached");
    scene.logs.expect("no channel to publish on");
    let before = scene.marker(None).await;
    // Stamped, not only delivered: its confirm may still be on the way.
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().away().await;
    scene.logs.wait_for("broker connection lost").await;
    let (kept, lost) = (event("order.placed"), event("order.placed"));

    scene.roll_back_all(std::slice::from_ref(&lost)).await;
    scene.commit(&kept).await;

    super::gone(&scene.client, &lost.id).await;
    // The verdict is written, although nothing can be sent.
    let resolved = scene.client.wait_for_state(&kept.id, EventState::Pending).await;
    assert!(resolved.resolved_at.is_some());
    assert_eq!((resolved.attempts, reconcile(&scene.database, 3).await.pending), (0, 1));
    scene.broker_proxy().pass().await;
    scene.consumer.wait_for_ids(&[&kept.id], LONG).await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_server_that_starts_without_a_broker_stages() {
    let stage = Scene::builder().with_broker_proxy().stage().await;
    stage.broker_proxy().away().await;
    stage.logs.expect("broker cannot be reached");
    stage.logs.expect("no channel to publish on");
    let scene = stage.start().await;

    let id = scene.commit(&event("order.placed")).await;

    scene.client.wait_for_state(&id, EventState::Pending).await;
    scene.broker_proxy().pass().await;
    scene.consumer.wait_for_ids(&[id], LONG).await;
    scene.end(1).await;
}

#[tokio::test]
async fn staging_and_draining_work_while_the_control_database_is_away() {
    let mut stage = Scene::builder().stage().await;
    // Nobody listens there.
    let nowhere = holdfast_server::dev::ports::Lease::any().unwrap();
    stage.config.text(
        "control",
        "database_url",
        &format!("postgres://postgres@127.0.0.1:{}/c", nowhere.port()),
    );
    stage.logs.expect("service.name=holdfast-control");
    let scene = stage.start().await;

    let id = scene.commit(&event("order.placed")).await;

    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.end(1).await;
}
