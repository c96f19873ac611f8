//! The scene of the common test, with both sorts of server.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, ids, keyed},
    reconcile::{Census, reconcile},
    scene::Scene,
    server::ServerProcess,
    wait::LONG,
};
use uuid::Uuid;

#[tokio::test]
async fn a_committed_event_arrives_and_a_rolled_back_one_does_not() {
    let scene = Scene::start().await;
    let (kept, lost) = (keyed("order.placed", "k"), keyed("order.placed", "k"));

    scene.roll_back_all(std::slice::from_ref(&lost)).await;
    scene.commit(&kept).await;

    let marker = scene.marker(Some("k")).await;
    scene.consumer.assert_only(&[&kept.id], marker).await;
    let delivery = &scene.consumer.seen()[0];
    assert_eq!((delivery.routing_key.as_str(), delivery.redelivered), ("order.placed", false));
    assert_eq!(delivery.json["id"], kept.id.as_str());
    let census = scene.end(3).await;
    assert_eq!((census.published, census.gone.values().sum::<i64>()), (2, 1), "{census:?}");
}

#[tokio::test]
async fn an_open_transaction_is_counted_as_unresolved() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    caller.row("the service's own").await;
    scene.client.stage(ticket, &[event("order.placed"), event("order.paid")]).await;

    let census = reconcile(&scene.database, 2).await;

    assert_eq!(census, Census { unresolved: 2, rows: 2, ..Census::default() });
    caller.rollback().await;
    assert_eq!(scene.end(2).await.rows, 0);
}

#[tokio::test]
async fn a_server_process_survives_kill_9_in_its_database() {
    let mut scene = Scene::builder().start_process().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events = [event("order.placed")];
    scene.client.stage(ticket, &events).await;

    scene.server.kill9().await;
    caller.commit().await;
    let new = ServerProcess::start(&scene.config).await;
    scene.replace_server(new);

    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_stopped_server_process_answers_nothing_until_it_goes_on() {
    let scene = Scene::builder().start_process().await;
    scene.server.sigstop().await;
    let client = scene.client.clone();
    let id = Uuid::now_v7().to_string();
    let asked = tokio::spawn(async move { client.get(&id).await });
    // Everything else goes on: this round trip to the database is later than the question.
    assert_eq!(reconcile(&scene.database, 0).await.rows, 0);
    assert!(!asked.is_finished());

    scene.server.sigcont();

    assert_eq!(asked.await.unwrap().unwrap_err().code(), tonic::Code::NotFound);
    scene.end(0).await;
}

#[tokio::test]
async fn a_caller_process_killed_before_its_commit_leaves_nothing() {
    let scene = Scene::start().await;
    let (dead, alive) = (Uuid::now_v7(), Uuid::now_v7());
    let mut caller = scene.caller_process();
    caller.begin().await;
    caller.ticket().await;
    assert_eq!(caller.stage(dead, "order.placed", "k").await, "OUTCOME_STAGED");
    caller.kill9().await;

    let mut caller = scene.caller_process();
    caller.begin().await;
    caller.ticket().await;
    assert_eq!(caller.stage(alive, "order.placed", "k").await, "OUTCOME_STAGED");
    caller.commit().await;

    scene.client.wait_for_state(&alive.to_string(), EventState::Published).await;
    let census = scene.end(2).await;
    assert_eq!((census.published, census.rows), (1, 1), "{census:?}");
}

#[tokio::test]
async fn proxies_stand_between_the_server_and_its_parties_only() {
    let scene = Scene::builder().with_database_proxy().with_broker_proxy().start().await;
    let id = scene.commit(&event("order.placed")).await;
    scene.consumer.wait_for_ids(&[id], LONG).await;
    assert!(scene.database_proxy().bytes_up() > 0 && scene.broker_proxy().bytes_up() > 0);
    let accepted = scene.database_proxy().accepted();

    scene.caller().await.close().await;

    assert_eq!(scene.database_proxy().accepted(), accepted);
    scene.end(1).await;
}
