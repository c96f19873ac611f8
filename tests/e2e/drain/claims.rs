//! Claims: the lock first, the claim in a later statement; a stamp does not need the lock; what is stranded all the same is
//! healed (design, section 4, "Order" and "Admission"; pitfalls: a lock taken in the claim's own statement).

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{Client, event, keyed},
    reconcile::settled,
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    wait::{self, LONG},
};
use sqlx::Connection as _;

use super::{MISSED, Row, hold_drain_lock, put, row, row_is};

#[tokio::test]
async fn no_pass_claims_while_another_holds_the_drain_lock_and_hints_stand() {
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").start().await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    let holder = hold_drain_lock(&scene.database).await;

    let (keyed_one, keyless) = (keyed("order.placed", "k"), event("order.placed"));
    scene.commit_all(&[keyed_one.clone(), keyless.clone()]).await;

    for id in [&keyed_one.id, &keyless.id] {
        // By the resolver, which needs no lock.
        let waiting = row_is(&scene.database, id, "resolved", |row| row.resolved).await;
        assert_eq!((waiting.generation, waiting.admitted), (0, false), "{waiting:?}");
    }
    holder.close().await.unwrap();
    scene.consumer.wait_for_ids(&[&keyed_one.id, &keyless.id], LONG).await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_stamp_goes_through_without_the_drain_lock_and_the_next_pass_promotes_the_followers() {
    let scene = Scene::builder().with_broker_proxy().set("drain", "poll", "\"60s\"").start().await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let front = scene.commit(&keyed("order.placed", "k")).await;
    row_is(&scene.database, &front, "claimed", |row| row.claimed).await;
    let follower = scene.commit(&keyed("order.paid", "k")).await;
    row_is(&scene.database, &follower, "set aside", Row::set_aside).await;
    let holder = hold_drain_lock(&scene.database).await;

    scene.broker_proxy().pass().await;

    let stamped = row_is(&scene.database, &front, "published", |row| row.published).await;
    assert!(stamped.is_head && !stamped.claimed, "left on the list of ended fronts: {stamped:?}");
    assert!(row(&scene.database, &follower).await.set_aside());
    holder.close().await.unwrap();
    scene.client.wait_for_state(&follower, EventState::Published).await;
    let settled = row(&scene.database, &front).await;
    assert!(!settled.is_head, "{settled:?}");
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(3).await;
}

#[tokio::test]
async fn a_failure_goes_through_without_the_drain_lock_and_its_followers_come_after_it() {
    let scene = Scene::start().await;
    super::unbind(&scene).await;
    let front = scene.commit(&keyed(super::NOBODY, "k")).await;
    row_is(&scene.database, &front, "backing off", |row| row.backing_off).await;
    let follower = scene.commit(&keyed("order.paid", "k")).await;
    row_is(&scene.database, &follower, "set aside", Row::set_aside).await;
    // The lock is taken whenever the front is on its way again.
    let mut failed_without = false;
    for _ in 0..3 {
        let attempts = row(&scene.database, &front).await.attempts;
        row_is(&scene.database, &front, "claimed again", |row| row.claimed || row.attempts > attempts).await;
        let holder = hold_drain_lock(&scene.database).await;
        let failed = row_is(&scene.database, &front, "failed again", |row| row.attempts > attempts).await;
        failed_without |= failed.is_head;
        holder.close().await.unwrap();
        if failed_without {
            break;
        }
    }

    super::bind(&scene, super::NOBODY).await;

    scene.consumer.wait_for_ids(&[&front, &follower], LONG).await;
    assert_eq!(scene.consumer.ids(), [front, follower]);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(2).await;
}

#[tokio::test]
async fn the_sweep_promotes_and_counts_a_follower_that_waits_for_nobody() {
    let settings = Scene::builder().set("drain", "poll", "\"100ms\"").set("drain", "sweep", "\"200ms\"");
    let scene = settings.start().await;
    // As if a promotion had been missed: set aside, and nothing before it.
    let stranded = put(&scene.database, "order.placed", Some("k"), &[("admitted_at", "now()")]).await;
    let after_it = scene.commit(&keyed("order.paid", "k")).await;

    scene.consumer.wait_for_ids(&[&stranded, &after_it], LONG).await;

    assert_eq!(scene.consumer.ids(), [stranded, after_it]);
    wait::until("missed promotions to be counted", LONG, || async {
        let missed = scene.server.metric(MISSED, "");
        if missed >= 1.0 { Ok(()) } else { Err(missed) }
    })
    .await;
    scene.end(2).await;
}

#[tokio::test]
async fn the_sweep_leaves_followers_alone_that_wait_for_somebody() {
    let settings = Scene::builder().set("drain", "poll", "\"50ms\"").set("drain", "sweep", "\"50ms\"");
    let scene = settings.start().await;
    super::unbind(&scene).await;
    let front = scene.commit(&keyed(super::NOBODY, "k")).await;
    row_is(&scene.database, &front, "backing off", |row| row.backing_off).await;
    let follower = scene.commit(&keyed("order.paid", "k")).await;
    row_is(&scene.database, &follower, "set aside", Row::set_aside).await;

    // Several sweeps later: the front was tried again meanwhile.
    row_is(&scene.database, &front, "tried again", |row| row.attempts >= 2).await;

    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    assert_eq!(row(&scene.database, &follower).await.generation, 0);
    super::bind(&scene, super::NOBODY).await;
    scene.consumer.wait_for(2, LONG).await;
    assert_eq!(scene.consumer.ids(), [front, follower]);
    scene.end(2).await;
}

#[tokio::test]
async fn a_claim_never_takes_more_than_its_batch_whatever_the_planner_does() {
    let mut stage = Scene::builder().with_broker_proxy().set("drain", "batch", "10").stage().await;
    let name = stage.database.name().to_owned();
    for switch in ["hashjoin", "mergejoin", "hashagg", "material", "bitmapscan", "indexscan", "indexonlyscan"]
    {
        stage.database.run(&format!("ALTER DATABASE {name} SET enable_{switch} = off")).await;
    }
    for _ in 0..60 {
        put(&stage.database, "order.placed", None, &[]).await;
    }
    // Due back-offs have a limit of their own.
    for _ in 0..30 {
        let due =
            [("admitted_at", "now()"), ("next_attempt_at", "now() - interval '1 second'"), ("attempts", "1")];
        put(&stage.database, "order.placed", None, &due).await;
    }
    // Claims are told apart by the instant they were made at; stamping them takes the mark away, so it is copied.
    stage
        .database
        .run(
            "CREATE TABLE claims (at timestamptz);
             CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.claims VALUES (NEW.claimed_at); RETURN NULL; END $$;
             CREATE TRIGGER note_claim AFTER UPDATE ON holdfast.event_outbox FOR EACH ROW
             WHEN (OLD.claimed_at IS NULL AND NEW.claimed_at IS NOT NULL) EXECUTE FUNCTION note_claim()",
        )
        .await;
    // A trigger that is not the release's would shut the gate.
    stage.config.set("drain", "poll", "\"100ms\"").set("drain", "schema_check", "\"0s\"");

    let server = ServerInProcess::start(&stage.config).await;

    stage.consumer.wait_for(90, LONG).await;
    settled(&stage.database, 90, LONG).await;
    let most: i64 = stage
        .database
        .one("SELECT max(n) FROM (SELECT count(*) AS n FROM claims GROUP BY at) AS of_one_claim")
        .await;
    assert!((1..=10).contains(&most), "{most} rows in one claim");
    assert_eq!(stage.consumer.ids().len(), 90, "each once");
    server.stop().await;
    stage.logs.check();
}

#[tokio::test]
async fn a_row_that_a_stranger_has_locked_stops_nobody_else() {
    let scene = Scene::start().await;
    let mut stranger = scene.caller().await;
    let holder = hold_drain_lock(&scene.database).await;
    let locked = put(&scene.database, "order.placed", Some("k"), &[]).await;
    stranger.begin().await;
    stranger.sql(&format!("SELECT FROM holdfast.event_outbox WHERE id = '{locked}' FOR UPDATE")).await;
    holder.close().await.unwrap();

    let other = scene.commit(&keyed("order.placed", "elsewhere")).await;
    let follower = scene.commit(&keyed("order.paid", "k")).await;

    scene.client.wait_for_state(&other, EventState::Published).await;
    row_is(&scene.database, &follower, "set aside", Row::set_aside).await;
    stranger.commit().await;
    scene.consumer.wait_for_ids(&[&locked, &follower], LONG).await;
    assert_eq!(scene.consumer.ids(), [other, locked, follower]);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(3).await;
}

#[tokio::test]
async fn a_committed_but_undecided_row_that_a_stranger_has_locked_stops_only_its_key() {
    let scene = Scene::start().await;
    // Staged through a server that is gone, so that nobody is hinted at it; locked before its transaction ends.
    let gone = ServerInProcess::start(&scene.config).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let locked = keyed("order.placed", "k");
    Client::new(gone.address(), SERVICE).stage(ticket, std::slice::from_ref(&locked)).await;
    gone.stop().await;
    let mut stranger = scene.caller().await;
    stranger.begin().await;
    stranger.sql(&format!("SELECT FROM holdfast.event_outbox WHERE id = '{}' FOR UPDATE", locked.id)).await;
    caller.commit().await;

    let follower = scene.commit(&keyed("order.paid", "k")).await;
    let other = scene.commit(&keyed("order.placed", "elsewhere")).await;

    scene.client.wait_for_state(&other, EventState::Published).await;
    assert!(!row(&scene.database, &follower).await.published);
    stranger.commit().await;
    scene.consumer.wait_for_ids(&[&locked.id, &follower], LONG).await;
    assert_eq!(scene.consumer.ids(), [other, locked.id, follower]);
    scene.end(3).await;
}

#[tokio::test]
async fn a_row_in_flight_that_a_stranger_has_locked_does_not_keep_its_neighbours_from_being_stamped() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    scene.logs.expect("outcomes cannot be written");
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let events = [event("order.placed"), event("order.placed"), keyed("order.placed", "k")];
    scene.commit_all(&events).await;
    scene.consumer.wait_for(4, LONG).await;
    let mut stranger = scene.caller().await;
    stranger.begin().await;
    stranger
        .sql(&format!("SELECT FROM holdfast.event_outbox WHERE id = '{}' FOR UPDATE", events[0].id))
        .await;

    scene.broker_proxy().pass().await;

    for one in &events[1..] {
        scene.client.wait_for_state(&one.id, EventState::Published).await;
    }
    assert!(row(&scene.database, &events[0].id).await.claimed);
    stranger.commit().await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    assert_eq!(scene.consumer.ids().len(), 4, "each once");
    scene.end(4).await;
}
