//! Claims whose owner is dead or late: leases heal them, generations fence their stamps (design, section 4).

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, keyed},
    scene::{SERVICE, Scene},
    server::{ServerInProcess, ServerProcess},
    wait::{self, LONG},
};

use super::{MISSED, expect_broker_trouble, expect_database_trouble, row, row_is};

const STALE: &str = "holdfast_stale_stamps_total";
const HEALED: &str = "holdfast_lease_heals_total";

#[tokio::test]
async fn a_stamp_that_comes_after_another_servers_claim_is_stale_and_changes_nothing() {
    let scene = Scene::builder()
        .with_database_proxy()
        .with_broker_proxy()
        .set("drain", "lease", "\"4s\"")
        .set("broker", "confirm_timeout", "\"2s\"")
        .start()
        .await;
    expect_database_trouble(&scene);
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let id = scene.commit(&keyed("order.placed", "k")).await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    assert!(row(&scene.database, &id).await.claimed);
    // The confirm arrives, the stamp does not.
    scene.database_proxy().stall();
    scene.broker_proxy().pass().await;

    let mut direct = scene.config.clone();
    direct.service(SERVICE, &scene.database.url());
    let other = ServerInProcess::start(&direct).await;

    let taken = row_is(&scene.database, &id, "published by the other", |row| row.published).await;
    assert_eq!(taken.generation, 2, "{taken:?}");
    assert!(other.metric(HEALED, "orders") >= 1.0);
    let follower = keyed("order.paid", "k");
    scene.database_proxy().pass().await;
    wait::until("the late stamp to be counted", LONG, || async {
        let seen = scene.server.metric(STALE, "orders");
        if seen >= 1.0 { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(row(&scene.database, &id).await, taken);
    scene.commit(&follower).await;
    scene.consumer.wait_for_ids(&[&follower.id], LONG).await;
    assert_eq!(scene.server.metric(MISSED, "") + other.metric(MISSED, ""), 0.0);
    other.stop().await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_dead_servers_claim_is_healed_while_the_others_are_busy() {
    let scene = Scene::builder().set("drain", "batch", "5").set("drain", "poll", "\"50ms\"").start().await;
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT 'order.placed', '{}'::jsonb FROM generate_series(1, 3000)",
        )
        .await;
    // Claimed by somebody who is gone, after the first pass has looked for such.
    wait::until("the backlog to be under way", LONG, || async {
        let published: i64 = scene
            .database
            .one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL")
            .await;
        if published > 0 { Ok(()) } else { Err(published) }
    })
    .await;
    scene
        .database
        .run(
            "WITH gone AS (
                 INSERT INTO holdfast.event_outbox
                     (seq, event_type, envelope, claimed_at, claimed_by, claim_generation)
                 VALUES (0, 'order.dead', '{}', now() - interval '1 hour', 'gone', 1)
                 RETURNING id, claimed_at, claimed_by)
             INSERT INTO holdfast.outbox_claim (claimed_at, claimed_by, ids, keys)
             SELECT claimed_at, claimed_by, ARRAY[id], ARRAY[''] FROM gone",
        )
        .await;

    scene.consumer.wait_for(3001, LONG).await;

    wait::until_equal("events published", LONG, 3001_i64, || async {
        scene.database.one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL").await
    })
    .await;
    let after: i64 = scene
        .database
        .one(
            "SELECT count(*) FROM holdfast.event_outbox
             WHERE published_at > (SELECT published_at FROM holdfast.event_outbox WHERE event_type = 'order.dead')",
        )
        .await;
    assert!(after > 0, "it waited for the end of the backlog");
    scene.end(3001).await;
}

#[tokio::test]
async fn heavy_the_claims_of_a_killed_server_are_healed_by_their_lease_and_keep_their_order() {
    let mut scene = Scene::builder()
        .with_broker_proxy()
        .set("drain", "lease", "\"2s\"")
        .set("broker", "confirm_timeout", "\"1s\"")
        .start_process()
        .await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall();
    let events = [keyed("order.placed", "k"), keyed("order.paid", "k"), keyed("order.shipped", "k")];
    scene.commit_all(&events).await;
    row_is(&scene.database, &events[0].id, "claimed", |row| row.claimed).await;
    scene.server.kill9().await;
    scene.broker_proxy().away().await;
    scene.broker_proxy().pass().await;
    let follower = keyed("order.closed", "k");

    let heir = ServerInProcess::start(&scene.config).await;

    let mut all = holdfast_tests::client::ids(&events);
    scene.consumer.wait_for_ids(&all, LONG).await;
    assert!(heir.metric(HEALED, "orders") >= 1.0);
    heir.stop().await;
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    all.push(scene.commit(&follower).await);
    scene.consumer.wait_for_ids(&all, LONG).await;
    assert_eq!(super::only(super::first_deliveries(scene.consumer.ids()), &all), all);
    scene.end(5).await;
}

#[tokio::test]
async fn a_server_that_stood_still_past_its_lease_changes_nothing_when_it_goes_on() {
    let scene = Scene::builder()
        .with_broker_proxy()
        .set("drain", "lease", "\"3s\"")
        .set("broker", "confirm_timeout", "\"1500ms\"")
        .start_process()
        .await;
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let id = scene.commit(&keyed("order.placed", "k")).await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    scene.server.sigstop().await;
    let mut config = scene.config.clone();
    config.text("broker", "url", &scene.vhost.url());
    let other = ServerInProcess::start(&config).await;
    let taken = row_is(&scene.database, &id, "published by the other", |row| row.published).await;

    scene.broker_proxy().pass().await;
    scene.server.sigcont();

    // It works again, and what it knew of the first claim is of no effect.
    let next = scene.commit(&keyed("order.paid", "k")).await;
    scene.client.wait_for_state(&next, EventState::Published).await;
    assert_eq!(row(&scene.database, &id).await, taken);
    assert_eq!(other.metric(MISSED, ""), 0.0);
    other.stop().await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_stamp_that_does_not_match_the_claims_generation_leaves_the_newer_claim_alone() {
    let scene = Scene::builder()
        .with_broker_proxy()
        .set("drain", "lease", "\"4s\"")
        .set("broker", "confirm_timeout", "\"2s\"")
        .start()
        .await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    scene.broker_proxy().stall_replies();
    let id = scene.commit(&keyed("order.placed", "k")).await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    // Another server's claim, in flight.
    scene
        .database
        .run(&format!(
            "WITH taken AS (
                 UPDATE holdfast.event_outbox SET claim_generation = claim_generation + 1, claimed_at = now(),
                        claimed_by = 'another' WHERE id = '{id}' AND claimed_at IS NOT NULL
                 RETURNING id, ordering_key, claimed_at, claimed_by)
             INSERT INTO holdfast.outbox_claim (claimed_at, claimed_by, ids, keys)
             SELECT claimed_at, claimed_by, ARRAY[id], ARRAY[ordering_key] FROM taken"
        ))
        .await;
    let newer = row(&scene.database, &id).await;
    assert_eq!((newer.generation, newer.claimed), (2, true), "{newer:?}");

    scene.broker_proxy().pass().await;

    wait::until_equal("stale stamps", LONG, 1.0, || async { scene.server.metric(STALE, "orders") }).await;
    assert_eq!(row(&scene.database, &id).await, newer);
    // The other never ends it; its lease does.
    scene.client.wait_for_state(&id, EventState::Published).await;
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(2).await;
}

#[tokio::test]
async fn a_row_that_claims_to_be_in_flight_and_is_in_no_batch_is_found_by_the_sweep() {
    let scene = Scene::builder()
        .set("drain", "lease", "\"2s\"")
        .set("broker", "confirm_timeout", "\"1s\"")
        .set("drain", "sweep", "\"1s\"")
        .start()
        .await;
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key, claimed_at, claimed_by)
             VALUES ('order.lost', '{}', 'k', now(), 'by hand')",
        )
        .await;
    scene.commit(&keyed("order.placed", "k")).await;

    scene.consumer.wait_for(2, LONG).await;
    scene.end(2).await;
}
