//! Two replicas, the front killed or asleep in the middle of a claim of many rows (design, section 4: chains, leases,
//! fenced stamps, "one in flight"; section 15, invariants 1 and 4).

use std::time::Duration;

use holdfast_proto::v1::Event;
use holdfast_tests::{
    caller::Caller,
    client::{ids, keyed},
    wait::LONG,
};

use super::{
    stand::{Setup, Stand},
    steps::{Play, Step, TYPE},
};

#[tokio::test]
async fn a_server_killed_in_the_middle_of_chains_sends_each_key_in_order_all_the_same() {
    let mut stand = Stand::start(Setup::shared(true)).await;
    let before = Play::go_before(&stand, 0, "warm").await;
    let chains: Vec<Vec<Event>> =
        ["a", "b", "c"].map(|key| (0..40).map(|_| keyed(TYPE, key)).collect()).into();
    // Turn about, so that one claim holds a piece of each chain.
    let events: Vec<Event> = (0..40).flat_map(|i| chains.iter().map(move |chain| chain[i].clone())).collect();
    let mut caller = Caller::connect(&stand.place().database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    let client = stand.front_client(stand.place());
    client.stage(ticket, &events).await;
    // Each confirm takes its time: a chain of forty has a middle.
    stand.proxy.delay(Duration::from_millis(5));
    caller.commit().await;
    client.confirm(ticket).await;
    stand.consumer.wait_for(1 + 9, LONG).await;

    stand.front.kill9().await;

    let came = stand.consumer.ids().len();
    assert!(came < 1 + events.len(), "all of it had been sent");
    stand.proxy.cut().await;
    stand.proxy.pass().await;
    stand.standby.sigcont();
    stand.consumer.wait_for_ids(&ids(&events), LONG).await;
    let census = stand.place().settled().await;
    assert_eq!((census.published, census.rows), (121, 121), "{census:?}");
    for chain in &chains {
        stand.first_came_in_order(&ids(chain));
        // What the front had on the wire and not stamped is repeated; a chain has one such event at a time, and those
        // that were confirmed since the last stamp.
        assert!(chain.iter().any(|event| stand.deliveries(&event.id) == 1));
    }
    assert_eq!(stand.deliveries(before), 1);
    stand.end().await;
}

#[tokio::test]
async fn a_server_that_sleeps_past_its_lease_repeats_what_it_had_in_hand_and_changes_nothing() {
    let mut stand = Stand::start(Setup::shared(true)).await;
    let play = Play::freeze(&mut stand, 0, Step::Claimed, "k").await;
    let [one, two] = play.events.map(|id| id.to_string());
    stand.front.sigstop().await;
    stand.standby.sigcont();
    let place = stand.place();
    let marker = stand.commit(place, &stand.standby_client(place), &keyed(TYPE, "k")).await;
    stand.consumer.wait_for_ids(&[&one, &two, &marker], LONG).await;
    place.is(&marker, "published").await;
    let generations = "SELECT array_agg(claim_generation::text || published_at::text ORDER BY seq)
                         FROM holdfast.event_outbox";
    let stamped: Vec<String> = place.database.one(generations).await;

    // It wakes up and sends what lay before its lips.
    stand.proxy.pass().await;
    stand.front.sigcont();
    stand.consumer.wait_for(5, LONG).await;
    // Alone, it stamps in order: its late stamp was tried once a later event is stamped.
    stand.standby.sigterm();
    assert!(stand.standby.exit_status(LONG).await.success());
    let place = stand.place();
    let last = stand.commit(place, &stand.front_client(place), &keyed(TYPE, "last")).await;
    place.is(&last, "published").await;

    let census = place.settled().await;
    assert_eq!((census.published, census.rows), (5, 5), "{census:?}");
    let now: Vec<String> = place.database.one(generations).await;
    assert_eq!(now[..4], stamped[..], "generations and stamps");
    assert_eq!([&one, &two, &marker].map(|id| stand.deliveries(id)), [2, 1, 1]);
    stand.first_came_in_order(&[play.before, one, two, marker]);
    stand.end().await;
}
