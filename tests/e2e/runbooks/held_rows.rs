//! held-rows.md.

use holdfast_tests::scene::Scene;

use super::open;
use crate::holds::put_held;

#[tokio::test]
async fn abandoned_operations_are_found_and_decided() {
    let scene = Scene::start().await;
    put_held(&scene.database, "finalize-17", 1, 2, None).await;
    put_held(&scene.database, "finalize-18", 1, 3, None).await;
    let mut runbook = open("held-rows.md", &scene);

    let listed = runbook.does("list").await;
    assert!(listed.contains("finalize-17") && listed.contains("finalize-18"), "{listed}");
    runbook.set("OPERATION", "finalize-17");
    runbook.set("GENERATION", "1");
    assert!(!runbook.does("operation").await.contains("finalize-18"));
    assert!(runbook.does("release").await.contains("released        2"));
    runbook.set("OTHER_OPERATION", "finalize-18");
    assert!(runbook.does("drop").await.contains("dropped         3"));
    runbook.set("OTHER_OPERATION", "finalize-17");
    let late = runbook.run("drop").await;
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("HOLD_ALREADY_DECIDED"), "{late:?}");
    runbook.is_done();
    let census = scene.end(5).await;
    assert_eq!((census.published, census.held), (2, 0));
}
