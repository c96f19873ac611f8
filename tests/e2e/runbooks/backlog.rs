//! backlog.md.

use holdfast_proto::v1::EventState;
use holdfast_tests::{client::event, scene::Scene, wait::LONG};

use super::open;
use crate::drain::{NOBODY, bind, row_is, unbind};

#[tokio::test]
async fn a_backlog_is_explained_and_ended() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    let mut runbook = open("backlog.md", &scene);

    runbook.does("pause").await;
    let waits = scene.commit(&event("order.placed")).await;
    assert!(runbook.does("services").await.contains("drain paused by"));
    let why = runbook.run("why").await;
    assert!(why.out.contains(&waits) && why.out.contains("paused"), "{why:?}");
    assert!(why.err.contains("the drain is paused by olga: the broker is being moved"), "{why:?}");
    runbook.does("resume").await;
    scene.client.wait_for_state(&waits, EventState::Published).await;

    let unroutable = scene.commit(&event(NOBODY)).await;
    row_is(&scene.database, &unroutable, "returned", |row| row.attempts > 0 && !row.claimed).await;
    // As after many attempts.
    scene
        .database
        .run(&format!("UPDATE holdfast.event_outbox SET next_attempt_at = now() + interval '15 min' WHERE id = '{unroutable}'"))
        .await;
    assert!(runbook.does("why").await.contains("unroutable"));
    bind(&scene, NOBODY).await;
    runbook.does("retry").await;
    scene.consumer.wait_for_ids(&[&waits, &unroutable], LONG).await;
    runbook.is_done();
    scene.end(2).await;
}
