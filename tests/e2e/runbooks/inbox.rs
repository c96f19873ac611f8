//! inbox.md.

use holdfast_proto::v1::FailKind;
use holdfast_tests::{
    client::event,
    folder,
    inbox::{Inbox, delivery, lease},
    scene::{SERVICE, Scene},
};

use super::open;

#[tokio::test]
async fn what_a_consumer_fails_at_is_found_with_its_error_and_a_missing_dead_letter_exchange_is_named() {
    let scene = Scene::start().await;
    let folder = folder::scratch();
    let config = folder.path().join("holdfast.toml");
    std::fs::write(&config, scene.config.to_toml()).unwrap();
    let inbox = Inbox::of(&scene);
    let dead = scene.commit(&event("order.placed")).await;
    let waiting = event("order.placed").id;
    for id in [&dead, &waiting] {
        inbox.condemned(id).await;
    }
    let token = inbox.get(&dead).await.token;
    inbox.try_surface(&token, b"{}").await.unwrap();
    let trying = event("order.paid").id;
    let mut request = delivery(&trying, lease(60));
    request.event_type = "order.paid".to_owned();
    let begun = holdfast_tests::inbox::process(inbox.try_begin(request).await.unwrap());
    inbox.try_fail(&trying, begun.generation, FailKind::Error).await.unwrap();
    let mut runbook = open("inbox.md", &scene);
    runbook.set("CONFIG", config.display().to_string());

    let failing = runbook.does("failing").await;
    for row in ["dead-lettered", "to dead-letter", "trying", "no such order"] {
        assert!(failing.contains(row), "{row}: {failing}");
    }
    runbook.set("EVENT_TYPE", "order.placed");
    let messages = runbook.does("messages").await;
    assert!(
        messages.contains(&dead) && messages.contains(&waiting) && !messages.contains(&trying),
        "{messages}"
    );
    runbook.set("PRODUCER", SERVICE);
    runbook.set("ID", &dead);
    let shown = runbook.does("event").await;
    assert!(shown.contains("dead_lettered"), "{shown}");
    let check = runbook.run("check").await;
    assert_eq!(check.code, 0, "{check:?}");
    let exchange = format!("/api/exchanges/{}/holdfast.dlx", scene.vhost.name());
    scene.vhost.ask("DELETE", &exchange, None).await;
    let check = runbook.run("check").await;
    assert!(check.out.contains("\"holdfast.dlx\" is not there"), "{check:?}");
    runbook.is_done();
    scene.end(1).await;
}
