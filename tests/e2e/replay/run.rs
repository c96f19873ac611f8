//! How it is sent: marked, in order per key, beside the drain and by its rules.

use holdfast_proto::v1::{EventState, ReplayRequest, ReplayState};
use holdfast_tests::{
    client::{event, ids, keyed},
    inbox::{Inbox, delivery, lease},
    operator::Operator,
    replay::{Replays, everything},
    scene::{QUEUES, Scene},
    wait::{self, LONG},
};

use super::{books, lane, once, published, put_published, replayed};
use crate::drain::{NOBODY, bind, put, unbind};

#[tokio::test]
async fn a_small_replay_has_ended_when_the_call_answers_and_its_messages_are_those_of_the_first_time() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = [event("order.placed"), event("order.paid")];
    published(&scene, &events).await;
    let first = scene.consumer.wait_for(2, LONG).await;

    let done = replays.replay(everything()).await;

    assert_eq!((done.state(), books(&done)), (ReplayState::Done, [2, 2, 0, 0, 0, 0]));
    assert!(done.started_at.is_some() && done.ended_at.is_some());
    let deliveries = scene.consumer.wait_for(4, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&ids(&events)));
    for one in &first {
        assert_eq!(one.header("x-holdfast-replay"), None);
        let again = deliveries[2..].iter().find(|again| again.id == one.id).unwrap();
        assert_eq!((&again.body, &again.routing_key), (&one.body, &one.routing_key));
        assert_eq!(again.properties.timestamp(), one.properties.timestamp());
        assert_eq!(again.properties.app_id(), one.properties.app_id());
    }
    assert_eq!(lane(&scene.database).await, 0);
    scene.end(2).await;
}

#[tokio::test]
async fn within_a_replay_a_key_keeps_the_order_of_staging_over_slices() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events: Vec<_> = (0..60).map(|n| keyed("order.placed", &format!("k-{}", n % 3))).collect();
    published(&scene, &events).await;
    // Whatever order their transactions were begun in.
    scene
        .database
        .run("UPDATE holdfast.event_outbox SET created_at = now() - interval '1 ms' * seq, published_at = now(), first_published_at = now() - interval '1 second'")
        .await;
    let before = scene.consumer.wait_for(60, LONG).await.len();

    // Slices of ten, from the eleventh event on.
    let plan = replays.plan(ReplayRequest { ramp: true, max_rate: Some(10_000), ..everything() }).await;
    let done = replays.run(&plan).await;

    assert_eq!(done.done, 60);
    let deliveries = scene.consumer.wait_for(120, LONG).await;
    for key in 0..3 {
        let staged: Vec<_> = events.iter().skip(key).step_by(3).map(|event| event.id.clone()).collect();
        let seen: Vec<_> = deliveries[before..]
            .iter()
            .filter(|one| staged.contains(&one.id))
            .map(|one| one.id.clone())
            .collect();
        assert_eq!(seen, staged, "key {key}");
    }
    scene.end(60).await;
}

#[tokio::test]
async fn two_equal_replays_at_once_add_up() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 50, "order.placed").await;

    let (one, other) = tokio::join!(replays.replay(everything()), replays.replay(everything()));

    for begun in [&one, &other] {
        let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;
        assert_eq!(books(&done), [50, 50, 0, 0, 0, 0]);
    }
    let deliveries = scene.consumer.wait_for(100, LONG).await;
    for begun in [&one, &other] {
        assert_eq!(replayed(&deliveries, &begun.replay_id), once(&events));
    }
    scene.end(50).await;
}

#[tokio::test]
async fn what_no_queue_takes_fails_is_listed_page_by_page_and_another_replay_tries_it_again() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    unbind(&scene).await;
    let mut nobodys = put_published(&scene.database, 3, NOBODY).await;
    let orders = put_published(&scene.database, 2, "order.placed").await;

    let done = replays.replay(everything()).await;

    assert_eq!((done.state(), books(&done)), (ReplayState::Done, [5, 2, 3, 0, 0, 0]));
    let (first, token) = replays.failures(&done.replay_id, 2, "").await;
    let (rest, end) = replays.failures(&done.replay_id, 2, &token).await;
    assert_eq!((first.len(), rest.len(), end.as_str()), (2, 1, ""));
    assert!(first[0].error.starts_with("unroutable: "), "{first:?}");
    let mut failed: Vec<_> = first.into_iter().chain(rest).map(|one| one.event_id).collect();
    failed.sort_unstable();
    nobodys.sort_unstable();
    assert_eq!(failed, nobodys);
    let state = scene.client.get(&nobodys[0]).await.unwrap().state();
    assert_eq!(state, EventState::Published, "it was, the first time");
    bind(&scene, NOBODY).await;
    let again = replays.replay(ReplayRequest { event_type: NOBODY.into(), ..everything() }).await;
    assert_eq!(books(&again), [3, 3, 0, 0, 0, 0]);
    let deliveries = scene.consumer.wait_for(5, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&orders));
    assert_eq!(replayed(&deliveries, &again.replay_id), once(&nobodys));
    scene.end(5).await;
}

#[tokio::test]
async fn what_has_become_older_than_the_horizon_is_counted_and_not_sent() {
    let scene = Scene::start().await;
    // A cycle of retention has just ended: nothing is pruned within the hour.
    scene
        .database
        .run(
            "INSERT INTO holdfast.retention_cycle (one, generation, started_at, jitter, leased_until, pruned)
              VALUES (true, 1, now(), 0, NULL, 0)",
        )
        .await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 6, "order.placed").await;
    let plan = replays.plan(ReplayRequest { max_rate: Some(1), ..everything() }).await;
    replays.try_run(&plan).await.unwrap();
    replays.wait_for(&plan.replay_id, ReplayState::Running).await;
    let old: Vec<_> = events[3..].iter().map(|id| format!("'{id}'")).collect();
    let sql = format!(
        "UPDATE holdfast.event_outbox SET created_at = now() - interval '29 days 23 hours' WHERE id IN ({})",
        old.join(",")
    );
    scene.database.run(&sql).await;
    // An hour goes by.
    scene
        .database
        .run("UPDATE holdfast.event_outbox SET created_at = created_at - interval '1 hour 1 second'")
        .await;
    scene.database.run("UPDATE holdfast.job SET max_rate = 1000").await;

    let done = replays.wait_for(&plan.replay_id, ReplayState::Done).await;

    assert_eq!(books(&done), [6, 3, 0, 3, 0, 0]);
    let deliveries = scene.consumer.wait_for(3, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&events[..3]));
    scene.end(6).await;
}

#[tokio::test]
async fn while_the_broker_is_away_a_replay_waits_and_counts_nothing() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    let replays = Replays::of(&scene);
    scene.logs.expect("broker");
    let events = put_published(&scene.database, 5, "order.placed").await;
    scene.broker_proxy().away().await;
    wait::until_equal("the broker's gauge", LONG, 0.0, async || {
        scene.server.metric("holdfast_broker_connected", "")
    })
    .await;

    let begun = replays.replay(everything()).await;
    let running = replays.wait_for(&begun.replay_id, ReplayState::Running).await;
    assert_eq!(books(&running), [5, 0, 0, 0, 0, 0]);
    scene.broker_proxy().pass().await;

    let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;
    assert_eq!(books(&done), [5, 5, 0, 0, 0, 0]);
    let deliveries = scene.consumer.wait_for(5, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&events));
    scene.end(5).await;
}

#[tokio::test]
async fn a_paused_drain_pauses_its_replays_and_live_events_do_not_wait_for_one() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let operator = Operator::of(&scene);
    put_published(&scene.database, 20, "order.old").await;
    operator.pause("the broker is being moved").await.unwrap();
    wait::until_equal("the pause", LONG, 1.0, async || {
        scene.server.metric("holdfast_outbox_drain_paused", "service=\"orders\"")
    })
    .await;

    let begun = replays.replay(ReplayRequest { max_rate: Some(1), ..everything() }).await;
    assert_eq!((begun.state(), begun.done), (ReplayState::Running, 0));
    operator.resume().await.unwrap();
    // One a second: this one would wait for the twentieth if it stood behind them.
    let live = scene.commit(&event("order.live")).await;
    scene.client.wait_for_state(&live, EventState::Published).await;
    let now = replays.get(&begun.replay_id).await;
    assert!(now.done < 20 && now.state() == ReplayState::Running, "{now:?}");
    replays.try_cancel(&begun.replay_id).await.unwrap();
    scene.end(21).await;
}

#[tokio::test]
async fn who_has_processed_it_with_the_inbox_sees_a_duplicate_and_a_dead_letter_is_tried_anew() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let inbox = Inbox::of(&scene);
    let events = [event("order.placed"), event("order.placed")];
    published(&scene, &events).await;
    let begun = inbox.process(&events[0].id, lease(60)).await;
    inbox.try_complete(&events[0].id, begun.generation).await.unwrap();
    inbox.condemned(&events[1].id).await;

    let answer = replays.try_replay(everything()).await.unwrap();

    let known: Vec<_> = answer
        .consumers
        .iter()
        .map(|one| (one.consumer_queue.as_str(), one.asked, one.suppressed, one.would_run, one.never_seen))
        .collect();
    assert_eq!(known, [(QUEUES[1], 2, 0, 0, 2), (QUEUES[0], 2, 1, 1, 0)]);
    let done = answer.replay.unwrap();

    let deliveries = scene.consumer.wait_for(4, LONG).await;
    let replay_id = deliveries[2].header("x-holdfast-replay").unwrap();
    assert_eq!(replay_id, done.replay_id);
    let again = |id: &str| {
        let mut request = delivery(id, lease(60));
        request.replay_id.clone_from(&replay_id);
        inbox.try_begin(request)
    };
    use holdfast_proto::v1::begin_consume_response::Outcome;
    assert!(matches!(again(&events[0].id).await.unwrap(), Outcome::Duplicate(_)));
    assert!(matches!(again(&events[1].id).await.unwrap(), Outcome::Process(_)));
    scene.end(2).await;
}

#[tokio::test]
async fn a_row_that_was_replaced_since_the_plan_is_not_sent_as_the_one_that_was_planned() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let id = put_published(&scene.database, 1, "order.placed").await.remove(0);
    let plan = replays.plan(everything()).await;
    // Pruned, and its id staged anew as another event.
    scene.database.run("DELETE FROM holdfast.event_outbox").await;
    put(
        &scene.database,
        "order.other",
        None,
        &[("parked_at", "now()"), ("parked_reason", "'x'"), ("admitted_at", "now()")],
    )
    .await;
    scene.database.run(&format!("UPDATE holdfast.event_outbox SET id = '{id}'")).await;

    let done = replays.run(&plan).await;

    assert_eq!(books(&done), [1, 0, 0, 0, 1, 0]);
    scene.end_as_it_is().await;
}
