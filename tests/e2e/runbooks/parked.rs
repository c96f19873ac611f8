//! parked.md.

use holdfast_proto::v1::EventState;
use holdfast_tests::scene::Scene;

use super::{open, park};

#[tokio::test]
async fn parked_events_are_sent_off_again_or_deleted() {
    let scene = Scene::start().await;
    let one = park(&scene.database, "order.placed", "a").await;
    let typed = park(&scene.database, "order.paid", "b").await;
    let hopeless = park(&scene.database, "order.lost", "c").await;
    let mut runbook = open("parked.md", &scene);

    let listed = runbook.does("list").await;
    for id in [&one, &typed, &hopeless] {
        assert!(listed.contains(id.as_str()), "{listed}");
    }
    runbook.set("ID", &one);
    assert!(runbook.does("event").await.contains("parked"));
    runbook.does("unpark-one").await;
    runbook.set("TYPE", "order.paid");
    assert!(runbook.does("unpark-type").await.contains("1 matched, 1 sent off again, 0 skipped"));
    for id in [&one, &typed] {
        scene.client.wait_for_state(id, EventState::Published).await;
    }
    runbook.set("OTHER_ID", &hopeless);
    runbook.set("REASON", "its consumer is gone for good");
    runbook.does("discard").await;
    let again = runbook.run("discard").await;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.contains("not_found"), "{again:?}");
    let audit = runbook.does("audit").await;
    assert!(audit.contains("its consumer is gone for good") && audit.contains("olga"), "{audit}");
    runbook.is_done();
    scene.end(3).await;
}
