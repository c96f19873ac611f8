//! Strangers who lock rows of the outbox for as long as they like: an operator who looks at an event is the likeliest of all.
//! Their rows wait; nobody else's do (design, section 4).

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, keyed},
    scene::Scene,
    wait::LONG,
};

use super::{put, row};

#[tokio::test]
async fn a_row_that_must_fly_alone_and_is_locked_keeps_nobody_waiting() {
    let scene = Scene::start().await;
    let lone =
        [("lone_claims", "2"), ("admitted_at", "now()"), ("next_attempt_at", "now() + interval '1 second'")];
    let suspect = put(&scene.database, "order.placed", None, &lone).await;
    let mut stranger = scene.caller().await;
    stranger.begin().await;
    stranger.sql(&format!("SELECT FROM holdfast.event_outbox WHERE id = '{suspect}' FOR UPDATE")).await;
    scene.database.run("SELECT pg_sleep(1.1)").await;

    let others = [event("order.placed"), keyed("order.placed", "k"), keyed("order.paid", "k")];
    scene.commit_all(&others).await;

    for other in &others {
        scene.client.wait_for_state(&other.id, EventState::Published).await;
    }
    assert!(!row(&scene.database, &suspect).await.published);
    // Nor is it asked for again and again: a poll a second, and what looks on. A slow machine only makes them fewer.
    let transactions = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let before: i64 = scene.database.one(transactions).await;
    scene.database.run("SELECT pg_sleep(3)").await;
    let asked = scene.database.one::<i64>(transactions).await - before;
    assert!(asked < 60, "{asked} transactions in three seconds");
    stranger.commit().await;
    scene.consumer.wait_for_ids(&[&suspect], LONG).await;
    scene.end(4).await;
}

#[tokio::test]
async fn a_locked_row_whose_confirm_came_does_not_keep_one_that_must_fly_alone_from_flying() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let locked = scene.commit(&event("order.placed")).await;
    scene.consumer.wait_for_ids(&[&locked], LONG).await;
    let mut stranger = scene.caller().await;
    stranger.begin().await;
    stranger.sql(&format!("SELECT FROM holdfast.event_outbox WHERE id = '{locked}' FOR UPDATE")).await;
    scene.broker_proxy().pass().await;

    let lone = [("lone_claims", "2"), ("admitted_at", "now()"), ("next_attempt_at", "now()")];
    let suspect = put(&scene.database, "order.placed", None, &lone).await;
    let other = scene.commit(&event("order.placed")).await;

    for id in [&suspect, &other] {
        scene.client.wait_for_state(id, EventState::Published).await;
    }
    assert!(row(&scene.database, &locked).await.claimed);
    stranger.commit().await;
    scene.client.wait_for_state(&locked, EventState::Published).await;
    scene.end(4).await;
}
