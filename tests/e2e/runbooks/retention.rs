//! retention.md.

use holdfast_tests::{
    scene::Scene,
    wait::{self, LONG},
};

use super::open;

const SUCCESS: &str = "holdfast_retention_last_success_timestamp_seconds";
const CAPPED: &str = "holdfast_retention_capped";

#[tokio::test]
async fn a_cycle_that_stops_at_its_cap_and_one_that_does_not_end_are_told_apart() {
    let scene = Scene::builder()
        .set("retention", "most", "1000")
        .set("retention", "interval", "\"60s\"")
        .set("drain", "schema_check", "\"0s\"")
        .start()
        .await;
    let mut runbook = open("retention.md", &scene);
    let orders = "service=\"orders\"";
    wait::until("the first cycle", LONG, || async {
        let at = scene.server.metric(SUCCESS, orders);
        if at > 0.0 { Ok(()) } else { Err(at) }
    })
    .await;
    let well = runbook.does("cycle").await;
    assert!(well.contains("succeeded_at") && well.contains("(1 row)"), "{well}");
    assert!(well.lines().nth(2).unwrap().contains("| f "), "{well}");

    // As after a cycle with more to do than its cap, and then one whose replica is gone.
    scene.database.run("UPDATE holdfast.retention_cycle SET capped = true, pruned = 1000").await;
    wait::until_equal("the gauge", LONG, 1.0, || async { scene.server.metric(CAPPED, orders) }).await;
    let capped = runbook.does("cycle").await;
    assert!(capped.lines().nth(2).unwrap().contains("| t "), "{capped}");
    runbook.is_done();
    scene.end(0).await;
}
