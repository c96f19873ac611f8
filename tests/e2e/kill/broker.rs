//! RabbitMQ, `kill -9` and restart, with an event at every step at that moment, and under load (design, section 15,
//! invariants 1 and 3; section 4, "the broker away is not the row's fault").
//!
//! A broker takes long to start, so one kill finds all steps at once: each service of the same server is stopped at a
//! step of its own. The steps before the caller's commit need no broker. The consumer may see anything twice: the
//! broker forgets acknowledgements that it had not written.

use holdfast_server::dev::{RabbitMq, rabbitmq};
use holdfast_tests::{client::keyed, folder, services::BrokerAt, wait::LONG};

use super::{
    load::Load,
    stand::{Setup, Stand},
    steps::{Play, Step, TYPE},
};

async fn start(folder: &std::path::Path) -> (RabbitMq, BrokerAt) {
    let options = rabbitmq::Options::new(folder).plugin("rabbitmq_management");
    let broker = RabbitMq::start(options).await.unwrap();
    let at = BrokerAt { port: broker.port(), management_port: broker.management_port().unwrap() };
    (broker, at)
}

fn announce(stand: &Stand) {
    for line in ["broker connection lost", "broker cannot be reached", "no channel to publish on"] {
        stand.logs.expect(line);
    }
    // Whoever waited for a connection when the replicas were stopped has waited for too long when they wake up.
    stand.logs.expect("service database cannot be drained");
    stand.logs.expect("resolver cannot reach its database");
}

#[tokio::test]
async fn a_killed_broker_loses_no_event_at_any_step() {
    let folder = folder::scratch();
    let (mut broker, at) = start(folder.path()).await;
    // The gates first, the proxy then: it holds everything that comes after.
    let steps = [
        ("staged", Step::Staged),
        ("committed", Step::Committed),
        ("claim-runs", Step::ClaimRuns),
        ("claim-commits", Step::ClaimCommits),
        ("stamp-runs", Step::StampRuns),
        ("stamp-commits", Step::StampCommits),
        ("published", Step::Published),
        ("claimed", Step::Claimed),
    ];
    let services = steps.map(|(service, _)| service);
    let mut stand = Stand::start(Setup { broker: at, services: &services, ..Setup::shared(false) }).await;
    announce(&stand);
    // For each service, before the proxy holds what would open its channel.
    let mut before = Vec::new();
    for i in 0..steps.len() {
        before.push(Play::go_before(&stand, i, "k").await);
    }
    let mut plays = Vec::new();
    for (i, ((_, step), before)) in steps.into_iter().zip(before).enumerate() {
        plays.push(Play::freeze_behind(&mut stand, i, step, "k", before).await);
    }

    broker.kill9().await;
    stand.thaw().await;
    stand.standby.sigcont();
    // Nobody needs the broker to commit.
    plays[0].caller.commit().await;
    broker.start_again().await.unwrap();

    for (place, play) in stand.places.iter().zip(&plays) {
        let marker = stand.commit(place, &stand.front_client(place), &keyed(TYPE, "k")).await;
        let [one, two] = play.events.map(|id| id.to_string());
        stand.consumer.wait_for_ids(&[&one, &two, &marker], LONG).await;
        stand.first_came_in_order(&[play.before.clone(), one, two, marker]);
        let census = place.settled().await;
        assert_eq!(
            (census.published, census.rows, census.accounted()),
            (4, 4, 4),
            "{:?}: {census:?}",
            play.step
        );
        let attempts = "SELECT max(attempts) FROM holdfast.event_outbox";
        assert_eq!(place.database.one::<i32>(attempts).await, 0, "{:?}: no attempt was burnt", play.step);
    }
    stand.end().await;
    // Quicker than in order, and nobody will read its data.
    broker.kill9().await;
}

#[tokio::test]
async fn a_broker_killed_under_load_loses_nothing_and_stops_no_commit() {
    let folder = folder::scratch();
    let (mut broker, at) = start(folder.path()).await;
    let stand = Stand::start_both(Setup { broker: at, ..Setup::shared(true) }).await;
    announce(&stand);
    let load = Load::start(&stand);
    load.commits(60).await;
    broker.kill9().await;
    load.commits(60).await;
    broker.start_again().await.unwrap();
    load.commits(60).await;
    load.end(stand.place()).await.hold(&stand, true).await;
    stand.end().await;
    // Quicker than in order, and nobody will read its data.
    broker.kill9().await;
}
