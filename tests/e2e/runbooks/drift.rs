//! drift.md.

use holdfast_proto::v1::EventState;
use holdfast_tests::{client::event, folder, health::Health, scene::Scene};

use super::open;

#[tokio::test]
async fn what_was_dropped_is_named_put_back_and_the_service_heals() {
    let scene = Scene::builder().set("drain", "schema_check", "\"200ms\"").start().await;
    let folder = folder::scratch();
    let config = folder.path().join("holdfast.toml");
    std::fs::write(&config, scene.config.to_toml()).unwrap();
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    let mut runbook = open("drift.md", &scene);
    runbook.set("CONFIG", config.display().to_string());
    scene.logs.expect("the service is not served until it is mended");
    scene.database.run("DROP INDEX holdfast.event_outbox_parked").await;
    health.does_not_serve("service/orders").await;

    let look = runbook.does("look").await;
    assert!(look.contains("index holdfast.event_outbox_parked is missing"), "{look}");
    let check = runbook.run("check").await;
    assert_eq!(check.code, 1, "{check:?}");
    assert!(check.out.contains("index holdfast.event_outbox_parked is missing"), "{check:?}");
    runbook.set("NAME", "event_outbox_parked");
    let line = runbook.does("expected").await;
    let statement = line.trim().split_once(": ").unwrap().1;
    runbook.set("STATEMENT", statement.replacen("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1));
    runbook.does("mend").await;
    health.serves("service/orders").await;
    runbook.does("served").await;
    runbook.does("migrate").await;
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    runbook.is_done();
    scene.end(1).await;
}
