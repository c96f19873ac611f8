//! Outages that take long: many of them, and a broker that blocks its publishers (pitfalls, "RabbitMQ and lapin").

use std::time::Duration;

use holdfast_proto::v1::EventState;
use holdfast_server::dev::{RabbitMq, rabbitmq};
use holdfast_tests::{
    client::event,
    folder,
    scene::Scene,
    server::ServerProcess,
    services::BrokerAt,
    wait::{self, LONG},
};

use super::{expect_broker_trouble, row_is};

#[tokio::test]
async fn heavy_after_ten_outages_the_broker_has_as_many_connections_as_before() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    let before = scene.vhost.connections_are(2).await.len();
    for _ in 0..10 {
        let accepted = scene.broker_proxy().accepted();
        scene.broker_proxy().cut().await;
        wait::until("a new connection", LONG, || async {
            let seen = scene.broker_proxy().accepted();
            if seen > accepted { Ok(()) } else { Err(seen) }
        })
        .await;
        // The new one works: an event goes out through it.
        let id = scene.commit(&event("order.placed")).await;
        scene.client.wait_for_state(&id, EventState::Published).await;
    }

    let after = scene.vhost.connections_are(before).await;

    let publishers = after.iter().filter(|one| one.client.as_deref() == Some("holdfast publisher")).count();
    assert_eq!((publishers, scene.broker_proxy().open()), (1, 1), "{after:?}");
    scene.end(10).await;
}

#[tokio::test]
async fn heavy_a_memory_alarm_burns_no_attempts_and_does_not_hold_up_a_stop() {
    let folder = folder::scratch();
    let options = || rabbitmq::Options::new(folder.path()).plugin("rabbitmq_management");
    // Any broker needs more than this: the alarm is up from its start. Who does not publish is not blocked.
    let mut broker =
        RabbitMq::start(options().setting("vm_memory_high_watermark.absolute = 1MB")).await.unwrap();
    let (port, management_port) = (broker.port(), broker.management_port().unwrap());
    let mut scene = Scene::builder()
        .on_broker(BrokerAt { port, management_port })
        .set("broker", "confirm_timeout", "\"2s\"")
        .start_process()
        .await;
    scene.logs.expect("broker blocks publishing");
    expect_broker_trouble(&scene);

    let events: Vec<_> = (0..5).map(|_| event("order.placed")).collect();
    scene.commit_all(&events).await;
    scene.logs.wait_for("broker blocks publishing").await;
    let late = scene.commit(&event("order.placed")).await;
    for one in &events {
        let waiting =
            row_is(&scene.database, &one.id, "given back", |row| row.resolved && !row.claimed).await;
        assert_eq!((waiting.attempts, waiting.published), (0, false), "{waiting:?}");
    }
    let unclaimed = row_is(&scene.database, &late, "resolved", |row| row.resolved).await;
    assert_eq!(unclaimed.generation, 0, "nothing is claimed while the broker blocks");
    scene.server.sigterm();
    assert!(scene.server.exit_status(Duration::from_secs(25)).await.success());

    broker.stop().await.unwrap();
    drop(broker);
    let mut calm = options();
    (calm.port, calm.management_port) = (Some(port), Some(management_port));
    let _broker = RabbitMq::start(calm).await.unwrap();
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));

    let mut ids = holdfast_tests::client::ids(&events);
    ids.push(late);
    scene.consumer.wait_for_ids(&ids, LONG).await;
    scene.end(6).await;
}
