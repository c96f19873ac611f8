//! access.md.

use holdfast_tests::{folder, health::Health, scene::Scene};

use super::open;

#[tokio::test]
async fn keys_tokens_and_the_control_database_are_asked_for() {
    let scene = Scene::start().await;
    let folder = folder::scratch();
    let config = folder.path().join("holdfast.toml");
    std::fs::write(&config, scene.config.to_toml()).unwrap();
    Health::of(scene.server.address()).serves("control").await;
    let mut runbook = open("access.md", &scene);
    runbook.set("CONFIG", config.display().to_string());

    assert!(runbook.does("check").await.contains("ok"));
    assert!(runbook.does("whoami").await.contains("orders"));
    assert_eq!(runbook.does("control").await, "control: SERVING\n");
    runbook.is_done();
    scene.end(0).await;
}
