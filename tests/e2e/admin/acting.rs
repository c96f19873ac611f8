//! Verbs over many events: what was done, what was left alone, and what the exit code says of it.

use holdfast_proto::v1::EventState;
use holdfast_tests::{client::event, scene::Scene, terminal::Terminal};

use crate::drain::put;

/// A parked event by SQL, without a key.
async fn park(scene: &Scene, kind: &str) -> String {
    let more = [("parked_at", "now()"), ("parked_reason", "'crashed'"), ("admitted_at", "now()")];
    put(&scene.database, kind, None, &more).await
}

#[tokio::test]
async fn named_events_that_are_left_alone_make_the_exit_code_1_and_are_listed_with_why() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    let parked = park(&scene, "order.parked").await;
    let published = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&published, EventState::Published).await;

    let retried = terminal.admin(&["retry", "orders", &parked, &published]).await;

    assert_eq!((retried.code, retried.err.as_str()), (1, ""), "{retried:?}");
    assert!(retried.out.starts_with("2 matched, 0 made due, 2 skipped\n"), "{retried:?}");
    assert!(retried.out.contains(&format!("{parked}  parked")), "{retried:?}");
    assert!(retried.out.contains(&format!("{published}  published")), "{retried:?}");
    let nothing = terminal.does(&["unpark", "orders", "--type", "order.other"]).await;
    assert_eq!(nothing, "0 matched, 0 sent off again, 0 skipped\n", "a filter takes what it finds");
    scene.end(2).await;
}

#[tokio::test]
async fn what_is_pending_is_filtered_by_why_and_shown_as_json() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    let parked = park(&scene, "order.parked").await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let open = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&open)).await;

    let by_why = terminal.json(&["pending", "orders", "--why", "parked"]).await;
    let ids: Vec<_> = by_why.iter().map(|row| row["id"].as_str()).collect();
    assert_eq!(ids, [Some(parked.as_str())]);
    assert_eq!(by_why[0]["why"], "PENDING_WHY_PARKED");
    let by_type = terminal.json(&["pending", "orders", "--type", "order.placed"]).await;
    assert_eq!((by_type.len(), &by_type[0]["ticket"]), (1, &ticket.to_string().into()), "{by_type:?}");
    caller.rollback().await;
    scene.client.confirm(ticket).await;
    let acted = terminal.json(&["unpark", "orders", "--all"]).await;
    assert_eq!((acted.len(), &acted[0]["acted"], &acted[0]["complete"]), (1, &"1".into(), &true.into()));
    scene.client.wait_for_state(&parked, EventState::Published).await;
    scene.end(2).await;
}

#[tokio::test]
async fn more_than_one_call_can_do_is_done_by_several() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    terminal.does(&["pause", "orders", "--reason", "so that they stay"]).await;
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope, parked_at, parked_reason, admitted_at)
             SELECT id, 'order.bulk', jsonb_build_object('id', id::text, 'type', 'order.bulk'), now(), 'crashed', now()
             FROM (SELECT holdfast.uuid_v7() AS id FROM generate_series(1, 3000)) AS made",
        )
        .await;

    let said = terminal.does(&["discard", "orders", "--all", "--reason", "for the test"]).await;

    let total: i64 = said.lines().map(|line| line.split(' ').next().unwrap().parse::<i64>().unwrap()).sum();
    assert_eq!(total, 3_000, "{said}");
    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM holdfast.event_outbox").await, 0);
    let resumed = terminal.does(&["resume", "orders"]).await;
    assert!(resumed.contains("was paused by  olga"), "{resumed}");
    let again = terminal.admin(&["resume", "orders"]).await;
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    assert!(again.err.contains("it was not paused"), "{again:?}");
    scene.end(3_000).await;
}
