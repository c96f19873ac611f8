//! open-transactions.md.

use holdfast_tests::{client::event, scene::Scene};

use super::open;
use crate::staging::gone;

/// The value of a column in the only row of a table that has the columns' beginnings in its first line.
fn column(table: &str, name: &str) -> String {
    let mut lines = table.lines();
    let at = lines.next().unwrap().find(name).unwrap();
    lines.next().unwrap()[at..].split("  ").next().unwrap().trim().to_owned()
}

#[tokio::test]
async fn whoever_has_a_transaction_open_is_found_and_ended() {
    let scene = Scene::start().await;
    let mut runbook = open("open-transactions.md", &scene);
    let mut caller = scene.caller().await;
    let (forgotten, prepared) = (event("order.placed"), event("order.placed"));
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&prepared)).await;
    let gid = format!("moved_{}", scene.database.name());
    caller.sql(&format!("PREPARE TRANSACTION '{gid}'")).await;

    let listed = runbook.does("list").await;
    assert_eq!(
        (column(&listed, "HOLDER"), column(&listed, "PREPARED AS")),
        ("prepared".into(), gid.clone()),
        "{listed}"
    );
    runbook.set("GID", gid);
    runbook.does("prepared").await;
    gone(&scene.client, &prepared.id).await;

    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&forgotten)).await;
    let listed = runbook.does("list").await;
    assert_eq!(column(&listed, "STATE"), "idle in transaction", "{listed}");
    runbook.set("PID", column(&listed, "PID"));
    assert_eq!(runbook.does("blockers").await, "");
    assert_eq!(runbook.does("terminate").await, "t\n");
    gone(&scene.client, &forgotten.id).await;
    assert_eq!(runbook.does("list").await.lines().count(), 1);
    runbook.is_done();
    scene.end(2).await;
}
