//! retention.md.

use holdfast_tests::scene::Scene;

use super::open;

#[tokio::test]
async fn the_last_cycle_is_looked_at() {
    let scene = Scene::start().await;
    let mut runbook = open("retention.md", &scene);
    scene.database.one::<bool>("SELECT to_regclass('holdfast.retention_cycle') IS NOT NULL").await;

    let said = runbook.does("cycle").await;

    assert!(said.contains("succeeded_at"), "{said}");
    runbook.is_done();
    scene.end(0).await;
}
