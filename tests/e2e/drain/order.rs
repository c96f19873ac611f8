//! Invariant 4: events of one key leave in the order of staging, one in flight at a time, with any number of servers.

use holdfast_proto::v1::{Event, EventState};
use holdfast_tests::{
    caller::Caller,
    client::{Client, event, ids, keyed},
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    wait::LONG,
};

use super::{MISSED, first_deliveries, only, row_is};

/// 300 events of one key among 300 others, ten a transaction; the transactions of a key follow each other.
async fn stage_many(scene: &Scene, clients: &[&Client]) -> (Vec<String>, usize) {
    let mut of_key = Vec::new();
    let mut caller = scene.caller().await;
    for round in 0..30 {
        let events: Vec<Event> = (0..20)
            .map(|n| match n % 2 {
                0 => keyed("order.placed", "k"),
                _ if n % 3 == 0 => event("order.seen"),
                _ => keyed("order.paid", &format!("other-{n}")),
            })
            .collect();
        let ticket = caller.begin_with_ticket().await;
        clients[round % clients.len()].stage(ticket, &events).await;
        caller.commit().await;
        if round % 3 != 0 {
            clients[round % clients.len()].confirm(ticket).await;
        }
        of_key.extend(
            events.iter().filter(|one| one.ordering_key.as_deref() == Some("k")).map(|one| one.id.clone()),
        );
    }
    caller.close().await;
    (of_key, 600)
}

#[tokio::test]
async fn events_of_one_key_arrive_in_the_order_of_staging_while_others_flow() {
    let scene = Scene::start().await;
    let client = scene.client.clone();

    let (of_key, staged) = stage_many(&scene, &[&client]).await;

    scene.consumer.wait_for(staged, LONG).await;
    assert_eq!(only(scene.consumer.ids(), &of_key), of_key);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(staged).await;
}

#[tokio::test]
async fn heavy_two_servers_keep_the_order_of_a_key() {
    let scene = Scene::start().await;
    let other = ServerInProcess::start(&scene.config).await;
    let (one, two) = (scene.client.clone(), Client::new(other.address(), SERVICE));

    let (of_key, staged) = stage_many(&scene, &[&one, &two]).await;

    scene.consumer.wait_for_ids(&of_key, LONG).await;
    assert_eq!(first_deliveries(only(scene.consumer.ids(), &of_key)), of_key);
    scene.consumer.wait_for(staged, LONG).await;
    assert_eq!(scene.server.metric(MISSED, "") + other.metric(MISSED, ""), 0.0);
    other.stop().await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_follower_is_not_sent_before_its_predecessor_is_confirmed_by_either_of_two_servers() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    let first = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&first, EventState::Published).await;
    // Both reach the same broker; only this one's confirms are held.
    let mut config = scene.config.clone();
    config.text("broker", "url", &scene.vhost.url());
    scene.broker_proxy().stall_replies();
    let front = scene.commit(&keyed("order.placed", "k")).await;
    scene.consumer.wait_for_ids(&[&front], LONG).await;
    let other = ServerInProcess::start(&config).await;

    let follower = scene.commit(&keyed("order.paid", "k")).await;

    row_is(&scene.database, &follower, "set aside", super::Row::set_aside).await;
    let marker = Client::new(other.address(), SERVICE);
    let elsewhere = commit_through(&scene, &marker, &keyed("test.marker", "elsewhere")).await;
    scene.consumer.assert_only(&[&first, &front], elsewhere).await;
    assert_eq!(claimed_of(&scene, "k").await, 1);
    scene.broker_proxy().pass().await;
    scene.client.wait_for_state(&follower, EventState::Published).await;
    assert_eq!(scene.server.metric(MISSED, "") + other.metric(MISSED, ""), 0.0);
    other.stop().await;
    scene.end(4).await;
}

async fn commit_through(scene: &Scene, client: &Client, event: &Event) -> String {
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    client.stage(ticket, std::slice::from_ref(event)).await;
    caller.commit().await;
    client.confirm(ticket).await;
    event.id.clone()
}

async fn claimed_of(scene: &Scene, key: &str) -> i64 {
    scene
        .database
        .one(&format!(
            "SELECT count(*) FROM holdfast.event_outbox
             WHERE ordering_key = '{key}' AND claimed_at IS NOT NULL AND published_at IS NULL"
        ))
        .await
}

#[tokio::test]
async fn a_hint_for_the_second_of_two_serialised_writers_does_not_send_its_event_first() {
    let scene = Scene::start().await;
    // The first writers' events are staged through a server that is gone when they commit: nobody is hinted at them.
    let gone = ServerInProcess::start(&scene.config).await;
    let stager = Client::new(gone.address(), SERVICE);
    let mut writers: Vec<(Caller, String, Event)> = Vec::new();
    for n in 0..20 {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        let (key, earlier) = (format!("k-{n}"), keyed("order.placed", &format!("k-{n}")));
        stager.stage(ticket, std::slice::from_ref(&earlier)).await;
        writers.push((caller, key, earlier));
    }
    gone.stop().await;

    let mut pairs = Vec::new();
    for (mut caller, key, earlier) in writers {
        caller.commit().await;
        let later = keyed("order.paid", &key);
        let ticket = caller.begin_with_ticket().await;
        scene.client.stage(ticket, std::slice::from_ref(&later)).await;
        caller.commit().await;
        scene.client.confirm(ticket).await;
        pairs.push([earlier.id, later.id]);
    }

    scene.consumer.wait_for_ids(&pairs.concat(), LONG).await;
    for pair in &pairs {
        assert_eq!(only(scene.consumer.ids(), pair), pair);
    }
    scene.end(40).await;
}

#[tokio::test]
async fn a_rolled_back_earlier_event_is_discarded_on_the_way_and_holds_nobody_back() {
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").start().await;
    let (lost, kept) = (keyed("order.placed", "k"), keyed("order.paid", "k"));
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&lost)).await;
    caller.rollback().await;

    scene.commit(&kept).await;

    let marker = scene.marker(Some("k")).await;
    scene.consumer.assert_only(&[&kept.id], marker).await;
    scene.end(3).await;
}

#[tokio::test]
async fn an_earlier_event_whose_transaction_is_open_holds_nobody_back() {
    let scene = Scene::start().await;
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    let earlier = keyed("order.placed", "k");
    scene.client.stage(ticket, std::slice::from_ref(&earlier)).await;

    let later = scene.commit(&keyed("order.paid", "k")).await;

    scene.client.wait_for_state(&later, EventState::Published).await;
    open.commit().await;
    scene.client.confirm(ticket).await;
    scene.consumer.wait_for_ids(&[&earlier.id], LONG).await;
    assert_eq!(scene.consumer.ids(), [later, earlier.id]);
    scene.end(2).await;
}

#[tokio::test]
async fn an_earlier_event_that_commits_late_goes_out_when_the_one_in_flight_has_ended() {
    let scene = Scene::builder().with_broker_proxy().set("drain", "poll", "\"60s\"").start().await;
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    let earlier = keyed("order.placed", "k");
    scene.client.stage(ticket, std::slice::from_ref(&earlier)).await;
    scene.broker_proxy().stall_replies();
    let later = scene.commit(&keyed("order.paid", "k")).await;
    row_is(&scene.database, &later, "claimed", |row| row.claimed).await;

    open.commit().await;
    scene.client.confirm(ticket).await;

    row_is(&scene.database, &earlier.id, "set aside", super::Row::set_aside).await;
    assert_eq!(claimed_of(&scene, "k").await, 1);
    scene.broker_proxy().pass().await;
    scene.consumer.wait_for_ids(&[&later, &earlier.id], LONG).await;
    assert_eq!(scene.consumer.ids(), [later, earlier.id]);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(2).await;
}

#[tokio::test]
async fn events_of_one_request_keep_their_order() {
    let scene = Scene::start().await;
    let events: Vec<Event> = (0..200).map(|_| keyed("order.placed", "k")).collect();

    scene.commit_all(&events).await;

    scene.consumer.wait_for(200, LONG).await;
    assert_eq!(scene.consumer.ids(), ids(&events));
    scene.end(200).await;
}
