//! Connections that end, stops, and queues that are not as they must be.

use holdfast_client::v1::EventState;
use holdfast_server::dev::{RabbitMq, rabbitmq};
use holdfast_tests::{client::event, folder, scene::Scene, services::BrokerAt, wait::LONG};
use lapin::{options::QueueDeclareOptions, types::FieldTable};

use super::*;

fn gated() -> (Arc<Semaphore>, impl Fn(u32) -> Do + Send + Sync + 'static) {
    let gate = Arc::new(Semaphore::new(0));
    (gate.clone(), move |_| Do::Wait(gate.clone()))
}

async fn its_connection(scene: &Scene<impl Server>) -> holdfast_tests::vhost::BrokerConnection {
    wait::until("the consumer's connection", LONG, || async {
        let all = scene.vhost.connections().await;
        let name = format!("holdfast consumer {QUEUE}");
        all.iter().find(|one| one.client.as_deref() == Some(&name)).cloned().ok_or(all)
    })
    .await
}

async fn a_lost_connection(how: How) {
    let scene = Scene::start().await;
    scene.logs.expect("torn down");
    scene.logs.expect("cannot be reached");
    let (gate, script) = gated();
    let running = Running::start(&scene, how, |b| b, script).await;
    let id = scene.commit(&event("order.placed")).await;
    running.book.wait_for_runs(&id, 1).await;

    let before = its_connection(&scene).await;
    scene.vhost.close(&before).await;
    scene.logs.wait_for("torn down").await;
    gate.add_permits(100);

    // Its acknowledgement came too late; the redelivery is acknowledged without a run.
    wait_for_effect(&scene.database, &id).await;
    wait_for_empty(&scene).await;
    assert_eq!((running.book.runs(&id), effects(&scene.database, &id).await), (1, 1), "{how:?}");
    let more: Vec<_> = (0..30).map(|_| event("order.placed")).collect();
    scene.commit_all(&more).await;
    for one in &more {
        wait_for_effect(&scene.database, &one.id).await;
    }
    wait_for_empty(&scene).await;
    running.stop().await;
    scene.end(31).await;
}

#[tokio::test]
async fn a_connection_lost_while_a_ticket_s_handler_runs_is_made_anew_and_the_message_runs_once() {
    a_lost_connection(How::Ticket).await;
}

#[tokio::test]
async fn a_connection_lost_while_a_handler_in_process_runs_is_made_anew_and_the_message_runs_once() {
    a_lost_connection(How::InProcess).await;
}

#[tokio::test]
async fn an_acknowledgement_that_cannot_be_sent_tears_the_session_down() {
    let scene = Scene::start().await;
    for line in ["torn down", "cannot be reached"] {
        scene.logs.expect(line);
    }
    let proxy = holdfast_tests::chaos::Proxy::before(scene.vhost.broker().port).await;
    let (gate, script) = gated();
    let amqp = scene.vhost.url_through(proxy.port());
    let running = Running::begin(&scene, &amqp, How::Ticket, |b| b, script).await;
    scene.logs.wait_for("consuming").await;
    let id = scene.commit(&event("order.placed")).await;
    running.book.wait_for_runs(&id, 1).await;

    // The acknowledgement goes nowhere, then the connection does.
    proxy.stall();
    gate.add_permits(100);
    wait_for_effect(&scene.database, &id).await;
    proxy.cut().await;
    proxy.pass().await;

    scene.logs.wait_for("torn down").await;
    wait_for_empty(&scene).await;
    assert_eq!((running.book.runs(&id), effects(&scene.database, &id).await), (1, 1));
    running.stop().await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_stop_finishes_what_it_has_in_hand_and_leaves_the_rest_in_the_queue() {
    for how in ALL {
        let scene = Scene::start().await;
        let (gate, script) = gated();
        let running = Running::start(&scene, how, |b| b.concurrency(1).prefetch(5), script).await;
        let events: Vec<_> = (0..4).map(|_| event("order.placed")).collect();
        scene.commit_all(&events).await;
        for event in &events {
            scene.client.wait_for_state(&event.id, EventState::Published).await;
        }
        let begun = wait::until("a run", LONG, || async {
            events.iter().map(|e| e.id.clone()).find(|id| running.book.runs(id) == 1).ok_or(())
        })
        .await;

        running.stop.cancel();
        gate.add_permits(100);
        let book = running.book.clone();
        running.stop().await;

        // One, or another one that began before the stop was seen; none is half done.
        is_processed(&scene.database, &begun).await;
        let runs: u32 = events.iter().map(|event| book.runs(&event.id)).sum();
        let done: i64 = scene.database.one("SELECT count(*) FROM app_rows").await;
        assert_eq!(i64::from(runs), done, "{how:?}");
        assert!(runs < 4, "{how:?}: {runs} of 4 were run after a stop");
        let left = Some(u64::from(4 - runs));
        wait::until_equal("messages left", LONG, left, || scene.vhost.queue_depth(QUEUE)).await;
        assert_eq!(scene.logs.with("grace time is over").len(), 0);
        scene.end(4).await;
    }
}

#[tokio::test]
async fn a_handler_that_outlives_the_grace_is_given_back_uncounted() {
    for how in ALL {
        let scene = Scene::start().await;
        scene.logs.expect("grace time is over");
        scene.logs.expect("the handler failed");
        let change = |b: ConsumerBuilder| b.grace(Duration::from_millis(50));
        let running = Running::start(&scene, how, change, |_| Do::Hang).await;
        let id = scene.commit(&event("order.placed")).await;
        running.book.wait_for_runs(&id, 1).await;

        running.stop().await;

        assert_eq!(consumption(&scene.database, &id, "failures + lost_starts").await, "0", "{how:?}");
        assert_eq!(consumption(&scene.database, &id, "ended").await, "given_back", "{how:?}");
        // And the next one has it at once.
        let next = Running::start(&scene, how, |b| b, |_| Do::Fine).await;
        wait_for_effect(&scene.database, &id).await;
        wait_for_empty(&scene).await;
        next.stop().await;
        scene.end(1).await;
    }
}

#[tokio::test]
async fn a_broker_s_restart_is_survived() {
    let folder = folder::scratch();
    let options = rabbitmq::Options::new(folder.path()).plugin("rabbitmq_management");
    let mut broker = RabbitMq::start(options).await.unwrap();
    let at = BrokerAt { port: broker.port(), management_port: broker.management_port().unwrap() };
    let scene = Scene::builder().on_broker(at).start().await;
    for line in ["broker connection lost", "cannot be reached", "no channel to publish on", "torn down"] {
        scene.logs.expect(line);
    }
    // A quorum queue takes a while to confirm after a broker's start, and the server waits for that.
    let running = Running::start(&scene, How::Ticket, |b| b.queue_type("classic"), |_| Do::Fine).await;
    let before = scene.commit(&event("order.placed")).await;
    wait_for_effect(&scene.database, &before).await;

    broker.kill9().await;
    let during = scene.commit(&event("order.placed")).await;
    broker.start_again().await.unwrap();

    wait_for_effect(&scene.database, &during).await;
    let after = scene.commit(&event("order.placed")).await;
    wait_for_effect(&scene.database, &after).await;
    for id in [&before, &during, &after] {
        assert_eq!((effects(&scene.database, id).await, running.book.runs(id)), (1, 1));
    }
    running.stop().await;
    scene.end(3).await;
    // Quicker than in order, and nobody will read its data.
    broker.kill9().await;
}

#[tokio::test]
async fn a_queue_that_is_there_with_other_arguments_ends_the_consumer_and_is_named() {
    let scene = Scene::start().await;
    let connection = Connection::connect(&scene.vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await.unwrap();

    let running = Running::begin(&scene, &scene.vhost.url(), How::Ticket, |b| b, |_| Do::Fine).await;

    let error = tokio::time::timeout(LONG, running.task).await.unwrap().unwrap().unwrap_err().to_string();
    assert!(error.contains(QUEUE) && error.contains("x-"), "{error}");
    scene.end(0).await;
}
