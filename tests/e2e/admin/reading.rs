//! Lists, single things and decisions: as tables, and as JSON.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    auth,
    client::event,
    health::Health,
    holds::{commit, pair},
    scene::Scene,
    terminal::Terminal,
};

use crate::holds::put_held;

/// The columns of a line.
fn words(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect()
}

#[tokio::test]
async fn services_are_listed_and_one_is_told_of_with_what_lies_in_its_outbox() {
    let scene = Scene::start().await;
    Health::of(scene.server.address()).serves("service/orders").await;
    let terminal = Terminal::at(scene.server.address());

    let listed = terminal.does(&["services"]).await;
    let lines: Vec<_> = listed.lines().map(words).collect();
    assert_eq!(
        lines,
        [vec!["SERVICE", "SERVING", "PAUSED", "WHY NOT"], vec!["orders", "yes", "no", "-"]],
        "{listed}"
    );
    let one = terminal.does(&["services", "orders"]).await;
    assert!(one.contains("\nunroutable") && one.contains("connections"), "{one}");
    let json = terminal.json(&["services", "orders"]).await;
    assert_eq!((json.len(), &json[0]["settings"]["wake"]), (1, &"poll".into()), "{json:?}");
    scene.end(0).await;
}

#[tokio::test]
async fn an_event_is_told_of() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;

    let told = terminal.does(&["event", "orders", &id]).await;

    let lines: Vec<_> = told.lines().map(words).collect();
    assert!(lines.contains(&vec!["id", &id]) && lines.contains(&vec!["state", "published"]), "{told}");
    assert_eq!(terminal.json(&["event", "orders", &id]).await[0]["state"], "EVENT_STATE_PUBLISHED");
    scene.end(1).await;
}

#[tokio::test]
async fn a_list_says_when_it_does_not_show_all_and_shows_all_when_asked() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    for generation in 0..1_201 {
        put_held(&scene.database, "op", generation, 1, None).await;
    }

    let first = terminal.admin(&["holds", "orders"]).await;
    assert_eq!((first.code, first.out.lines().count()), (0, 101), "{}", first.err);
    assert!(first.err.contains("there are more"), "{}", first.err);
    let all = terminal.admin(&["holds", "orders", "--limit", "0"]).await;
    assert_eq!((all.out.lines().count(), all.err.as_str()), (1_202, ""));
    let json = terminal.json(&["holds", "orders", "--limit", "700"]).await;
    let generations: Vec<_> = json.iter().map(|row| row["hold"]["generation"].as_str().unwrap()).collect();
    let wanted: Vec<_> = (0..700).map(|generation| generation.to_string()).collect();
    assert_eq!(generations, wanted);
    assert_eq!(scene.end(1_201).await.held, 1_201);
}

#[tokio::test]
async fn a_hold_is_decided_and_deciding_it_the_other_way_is_no_success() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    let held = event("order.placed");
    commit(&scene, &pair("op", 1), std::slice::from_ref(&held)).await;
    put_held(&scene.database, "other", 1, 2, None).await;

    let listed = terminal.does(&["holds", "orders", "--operation", "op"]).await;
    assert_eq!(words(listed.lines().nth(1).unwrap())[..2], ["op", "1"], "{listed}");
    let released = terminal.does(&["release", "orders", "op", "1"]).await;
    assert_eq!(words(released.lines().next().unwrap()), ["released", "1"]);
    scene.client.wait_for_state(&held.id, EventState::Published).await;
    let late = terminal.admin(&["drop", "orders", "op", "1"]).await;
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("HOLD_ALREADY_DECIDED"), "{late:?}");
    let dropped = terminal.json(&["drop", "orders", "other", "1"]).await;
    assert_eq!(dropped[0]["dropped"], "2");
    let census = scene.end(3).await;
    assert_eq!((census.published, census.held), (1, 0));
}

#[tokio::test]
async fn the_audit_is_read_newest_first_by_who_may() {
    let scene = Scene::start().await;
    let root = Terminal::with_token(scene.server.address(), &auth::token_of("root", "holdfast.admin"));
    let olga = Terminal::at(scene.server.address());
    assert_eq!(olga.admin(&["audit"]).await.code, 3);
    olga.does(&["audit", "orders"]).await;

    let all = root.json(&["audit", "--verb", "ListAdminAudit"]).await;
    let seen: Vec<_> = all.iter().map(|row| (row["sub"].as_str(), row["outcome"].as_str())).collect();
    assert_eq!(
        seen,
        [
            (Some("root"), Some("ADMIN_OUTCOME_UNKNOWN")),
            (Some("olga"), Some("ADMIN_OUTCOME_DONE")),
            (Some("olga"), Some("ADMIN_OUTCOME_DENIED")),
        ]
    );
    assert_eq!(root.json(&["audit", "--sub", "olga", "--from", "2026-01-01T00:00:00Z"]).await.len(), 2);
    assert!(root.json(&["audit", "--to", "2026-01-01T00:00:00Z"]).await.is_empty());
    scene.end(0).await;
}
