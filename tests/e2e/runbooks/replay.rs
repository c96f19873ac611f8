//! replay.md.

use holdfast_tests::{
    client::event,
    inbox::{Inbox, lease},
    replay::{Replays, SAID, from_now},
    scene::Scene,
    wait::LONG,
};

use super::open;
use crate::replay::{put_published, replayed};

#[tokio::test]
async fn a_window_is_planned_run_gently_paused_and_resumed_by_the_commands_as_they_stand() {
    let scene = Scene::start().await;
    scene.logs.expect(SAID);
    let events = put_published(&scene.database, 150, "order.placed").await;
    let inbox = Inbox::of(&scene);
    let begun = inbox.process(&events[0], lease(60)).await;
    inbox.try_complete(&events[0], begun.generation).await.unwrap();
    let mut runbook = open("replay.md", &scene);
    runbook.set("FROM", from_now(-3_600).to_string());
    runbook.set("TO", from_now(60).to_string());
    runbook.set("EVENT_TYPE", "order.placed");

    let plan = runbook.does("plan").await;
    assert!(plan.contains("planned") && plan.contains("150") && plan.contains(&events[0]), "{plan}");
    assert!(plan.contains("SUPPRESSED") && plan.contains("orders.payments"), "{plan}");
    let run = plan.lines().find(|line| line.contains("holdfast admin replay run")).unwrap();
    let id = run.split_whitespace().last().unwrap().to_owned();
    runbook.set("REPLAY", &id);
    let done = runbook.does("run").await;
    assert!(done.contains("state          done") && done.contains("done           150"), "{done}");
    let deliveries = scene.consumer.wait_for(150, LONG).await;
    assert_eq!(replayed(&deliveries, &id).len(), 150);
    assert!(runbook.does("show").await.contains("ramp           yes"));
    assert!(runbook.does("list").await.contains(&id));
    assert_eq!(runbook.does("failures").await.lines().count(), 1, "the heading");
    // What has ended is neither paused nor resumed.
    for block in ["pause", "resume", "cancel"] {
        let said = runbook.run(block).await;
        assert!(said.code == 1 && said.err.contains("REPLAY_STATE"), "{block}: {said:?}");
    }
    let slow = Replays::of(&scene)
        .replay(holdfast_proto::v1::ReplayRequest {
            max_rate: Some(1),
            ..holdfast_tests::replay::everything()
        })
        .await;
    runbook.set("REPLAY", &slow.replay_id);
    assert!(runbook.does("pause").await.contains("paused by olga"));
    assert!(runbook.does("resume").await.contains("preparing"));
    assert!(runbook.does("cancel").await.contains("cancelled by olga"));
    runbook.is_done();
    let id = scene.commit(&event("order.live")).await;
    scene.client.wait_for_state(&id, holdfast_proto::v1::EventState::Published).await;
    scene.end(151).await;
}
