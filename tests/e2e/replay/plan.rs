//! A plan says what will be sent, and that is what is sent.

use holdfast_proto::v1::{ReplayRequest, ReplayState};
use holdfast_tests::{
    client::{event, ids, keyed},
    replay::{Replays, everything},
    scene::Scene,
    wait::LONG,
};
use tonic::Code;

use super::{books, lane, once, published, put_published, replayed};
use crate::{drain::put, staging::refusal};

#[tokio::test]
async fn a_dry_run_counts_and_names_what_it_would_send_and_sends_nothing() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = [event("order.placed"), event("order.placed"), event("order.paid")];
    published(&scene, &events).await;

    let answer = replays
        .try_replay(ReplayRequest { event_type: "order.placed".into(), dry_run: true, ..everything() })
        .await
        .unwrap();

    let plan = answer.replay.unwrap();
    assert_eq!((plan.state(), books(&plan)), (ReplayState::Planned, [2, 0, 0, 0, 0, 0]));
    let mut sample = answer.sample;
    sample.sort_unstable();
    let mut placed = ids(&events[..2]);
    placed.sort_unstable();
    assert_eq!(sample, placed);
    assert!(plan.expires_at.is_some() && plan.started_at.is_none());
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&ids(&events), &marker).await;
    assert_eq!(lane(&scene.database).await, 0);
    scene.end(4).await;
}

#[tokio::test]
async fn a_plan_that_is_run_sends_exactly_its_set_and_not_what_was_published_since() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let before = put_published(&scene.database, 30, "order.placed").await;
    let plan = replays.plan(everything()).await;
    published(&scene, &[event("order.late")]).await;
    // Even one whose time of staging lies in the middle of the window.
    put(
        &scene.database,
        "order.late",
        None,
        &[
            ("created_at", "now() - interval '29 minutes'"),
            ("published_at", "now()"),
            ("first_published_at", "now()"),
        ],
    )
    .await;

    let done = replays.run(&plan).await;

    assert_eq!(books(&done), [30, 30, 0, 0, 0, 0]);
    let deliveries = scene.consumer.wait_for(31, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&before));
    let stamped = format!(
        "SELECT count(*) FROM holdfast.event_outbox WHERE replay_id = '{}' AND last_published_at > first_published_at
           AND published_at < now() - interval '20 minutes'",
        done.replay_id
    );
    assert_eq!(scene.database.one::<i64>(&stamped).await, 30, "published as before, and sent again");
    scene.end(32).await;
}

#[tokio::test]
async fn what_was_pruned_since_the_plan_is_counted_before_and_after_its_copying() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 20, "order.placed").await;
    let plan = replays.plan(ReplayRequest { max_rate: Some(1), ..everything() }).await;
    let prune = async |ids: &[String]| {
        let ids: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
        let sql = format!(
            "WITH gone AS (DELETE FROM holdfast.event_outbox WHERE id IN ({}) RETURNING 1)
             INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows) SELECT 'pruned', 1, count(*) FROM gone
             ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows",
            ids.join(",")
        );
        scene.database.run(&sql).await;
    };
    prune(&events[..5]).await;
    let running = replays.try_run(&plan).await.unwrap();
    replays.wait_for(&running.replay_id, ReplayState::Running).await;
    prune(&events[15..]).await;
    scene.database.run("UPDATE holdfast.job SET max_rate = 1000").await;

    let done = replays.wait_for(&plan.replay_id, ReplayState::Done).await;

    assert_eq!(books(&done), [20, 10, 0, 0, 10, 0]);
    let deliveries = scene.consumer.wait_for(10, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&events[5..15]));
    scene.end(20).await;
}

#[tokio::test]
async fn what_is_not_published_is_counted_apart_and_left_to_the_drain() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let there = put_published(&scene.database, 3, "order.placed").await;
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.open")]).await;
    put(
        &scene.database,
        "order.parked",
        None,
        &[("parked_at", "now()"), ("parked_reason", "'x'"), ("admitted_at", "now()")],
    )
    .await;
    // In the hands of a publisher that is still to stamp it.
    let claimed = put(
        &scene.database,
        "order.claimed",
        None,
        &[
            ("claimed_at", "now() - interval '1 second'"),
            ("claimed_by", "'somebody'"),
            ("claim_generation", "1"),
        ],
    )
    .await;
    scene
        .database
        .run(&format!(
            "INSERT INTO holdfast.outbox_claim (claimed_at, claimed_by, ids, keys)
             SELECT claimed_at, 'somebody', ARRAY[id], ARRAY[''] FROM holdfast.event_outbox WHERE id = '{claimed}'"
        ))
        .await;

    let done = replays.replay(everything()).await;

    let done = replays.wait_for(&done.replay_id, ReplayState::Done).await;
    assert_eq!(books(&done), [3, 3, 0, 0, 0, 3]);
    let deliveries = scene.consumer.wait_for(3, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&there));
    open.rollback().await;
    scene.end_as_it_is().await;
}

/// The pitfall, as this design meets it: what is in flight is in no set, and what is published no stamp changes.
#[tokio::test]
async fn an_in_flight_publish_that_stamps_late_does_not_undo_a_replay() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let id = put_published(&scene.database, 1, "order.placed").await.remove(0);
    let done = replays.replay(everything()).await;
    assert_eq!((done.state(), done.done), (ReplayState::Done, 1));
    let row = format!(
        "SELECT (replay_id, published_at, last_published_at)::text FROM holdfast.event_outbox WHERE id = '{id}'"
    );
    let before = scene.database.one::<String>(&row).await;
    let stamp = holdfast_server::outbox::QUERIES.iter().find(|(name, _)| *name == "stamp").unwrap().1;
    let mut connection = scene.database.connect().await;

    let stamped = sqlx::query(stamp)
        .bind(vec![id.parse::<uuid::Uuid>().unwrap()])
        .bind(vec![1_i64])
        .bind(true)
        .fetch_all(&mut connection)
        .await
        .unwrap();

    assert_eq!(stamped.len(), 0);
    assert_eq!(scene.database.one::<String>(&row).await, before);
    scene.end(1).await;
}

#[tokio::test]
async fn a_plan_is_run_once_and_whoever_runs_it_again_is_told_how_it_stands() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 5, "order.placed").await;
    let plan = replays.plan(everything()).await;

    let done = replays.run(&plan).await;
    let again = replays.try_run(&plan).await.unwrap();

    assert_eq!((again.replay_id, again.state, again.done), (done.replay_id.clone(), done.state, 5));
    let deliveries = scene.consumer.wait_for(5, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&events));
    scene.end(5).await;
}

#[tokio::test]
async fn a_plan_whose_hour_is_over_cannot_be_run_nor_one_that_was_cancelled() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 1, "order.placed").await;
    let old = replays.plan(everything()).await;
    scene.database.run("UPDATE holdfast.job SET expires_at = now() - interval '1 second'").await;

    let refused = refusal(replays.try_run(&old).await);

    assert_eq!(refused, (Code::FailedPrecondition, "REPLAY_STATE".into()));
    assert_eq!(replays.get(&old.replay_id).await.reason, "the plan's hour is over");
    let plan = replays.plan(everything()).await;
    replays.try_cancel(&plan.replay_id).await.unwrap();
    assert_eq!(
        replays.try_run(&plan).await.unwrap().state(),
        ReplayState::Cancelled,
        "it is told how it stands"
    );
    let marker = scene.marker(None).await;
    scene.consumer.assert_only::<String>(&[], &marker).await;
    scene.end(2).await;
}

#[tokio::test]
async fn type_and_key_narrow_it_and_the_window_is_half_open() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    published(&scene, &[keyed("order.placed", "a"), keyed("order.placed", "b"), keyed("order.paid", "a")])
        .await;
    let count = async |request| replays.plan(request).await.matched;

    assert_eq!(count(everything()).await, 3);
    assert_eq!(count(ReplayRequest { event_type: "order.placed".into(), ..everything() }).await, 2);
    assert_eq!(count(ReplayRequest { ordering_key: Some("a".into()), ..everything() }).await, 2);
    let both =
        ReplayRequest { event_type: "order.paid".into(), ordering_key: Some("a".into()), ..everything() };
    assert_eq!(count(both).await, 1);
    // To the microsecond of the database's clock.
    scene
        .database
        .run(
            "UPDATE holdfast.event_outbox SET created_at = to_timestamp(1000000000) + interval '1 day' * seq",
        )
        .await;
    scene.database.run("UPDATE holdfast.event_outbox SET created_at = date_trunc('second', now()) - interval '10 minutes'").await;
    let at = scene
        .database
        .one::<i64>("SELECT extract(epoch FROM min(created_at))::bigint FROM holdfast.event_outbox")
        .await;
    let window = |from, to| ReplayRequest {
        from: Some(prost_types::Timestamp { seconds: from, nanos: 0 }),
        to: Some(prost_types::Timestamp { seconds: to, nanos: 0 }),
        ..everything()
    };
    assert_eq!(count(window(at, at + 1)).await, 3, "from is in it");
    assert_eq!(count(window(at - 1, at)).await, 0, "to is not");
    scene.end(3).await;
}
