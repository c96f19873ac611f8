//! restore.md: a dump that was taken while transactions were open comes back right.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::event,
    database::{Database, Kind},
    folder,
    holds::{self, Holds, pair},
    reconcile::reconcile,
    scene::{SERVICE, Scene, Server as _},
    server::ServerProcess,
    terminal::Terminal,
    wait::LONG,
};

use super::open;
use crate::staging::gone;

#[tokio::test]
async fn a_dump_taken_with_transactions_open_comes_back_right() {
    let mut scene = Scene::builder().start_process().await;
    let mut runbook = open("restore.md", &scene);
    let folder = folder::scratch();
    runbook.set("FILE", folder.path().join("orders.dump").display().to_string());

    let published = scene.commit(&event("order.published")).await;
    scene.client.wait_for_state(&published, EventState::Published).await;
    Terminal::at(scene.server.address()).does(&["pause", SERVICE, "--reason", "for the test"]).await;
    let pending = scene.commit(&event("order.pending")).await;
    scene.client.wait_for_state(&pending, EventState::Pending).await;
    let held = event("order.held");
    holds::commit(&scene, &pair("op", 1), std::slice::from_ref(&held)).await;
    scene.client.wait_for_state(&held.id, EventState::Held).await;
    let mut callers = Vec::new();
    for kind in ["order.unwritten", "order.late", "order.never"] {
        let (mut caller, event) = (scene.caller().await, event(kind));
        let ticket = caller.begin_with_ticket().await;
        caller.row(kind).await;
        scene.client.stage(ticket, std::slice::from_ref(&event)).await;
        callers.push((caller, event.id));
    }
    let [(mut commits, unwritten), (mut later, late), (mut never, rolled_back)] =
        <[_; 3]>::try_from(callers).unwrap_or_else(|_| unreachable!());
    // Nobody writes the verdict down: the first has committed when the dump begins, and its row does not say so.
    scene.server.sigstop().await;
    commits.commit().await;

    runbook.does("backup").await;

    scene.server.sigcont();
    later.commit().await;
    never.rollback().await;
    scene.client.wait_for_state(&late, EventState::Pending).await;
    let restored = Database::fresh(scene.database.server(), Kind::Empty).await;
    let mut config = scene.config.clone();
    config.service(SERVICE, &restored.url());
    let file = folder.path().join("holdfast.toml");
    std::fs::write(&file, config.to_toml()).unwrap();
    runbook.set("RESTORED_URL", restored.url());
    runbook.set("CONFIG", file.display().to_string());
    runbook.set("USER", "olga");
    runbook.does("restore").await;
    let unresolved: i64 =
        restored.one("SELECT count(*) FROM holdfast.event_outbox WHERE ticket IS NOT NULL").await;
    assert_eq!(unresolved, 3, "the dump was to have undecided rows in it");
    runbook.does("migrate").await;
    runbook.does("pause").await;
    let server = ServerProcess::start(&config).await;
    scene.replace_server(server).stop().await;
    runbook.at(Terminal::at(scene.server.address()));

    for id in [&late, &rolled_back] {
        gone(&scene.client, id).await;
    }
    scene.client.wait_for_state(&unwritten, EventState::Pending).await;
    let look = runbook.does("look").await;
    let listed: Vec<_> = look.lines().skip(1).collect();
    assert_eq!(listed.len(), 3, "{look}");
    for id in [&pending, &unwritten, &held.id] {
        assert!(listed.iter().any(|line| line.contains(id.as_str())), "{id}: {look}");
    }
    let own: String =
        restored.one("SELECT coalesce(string_agg(note, ',' ORDER BY note), '') FROM app_rows").await;
    assert_eq!(own, "order.unwritten", "what committed, and nothing else, is there with its event");
    runbook.does("resume").await;
    scene.consumer.wait_for_ids(&[&published, &pending, &unwritten], LONG).await;
    Holds::of(&scene).release(&pair("op", 1)).await;
    scene.consumer.wait_for_ids(&[&published, &pending, &unwritten, &held.id], LONG).await;
    scene.client.wait_for_state(&held.id, EventState::Published).await;
    assert_eq!(scene.consumer.ids().len(), 4, "each went out once");
    let census = reconcile(&restored, 6).await;
    assert_eq!(census.published, 4, "{census:?}");
    runbook.is_done();
    scene.end_as_it_is().await;
}
