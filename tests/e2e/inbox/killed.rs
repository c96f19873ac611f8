//! Ticket mode with a real queue and real consumers, killed with SIGKILL at every step: the effect's row is there once, always, and
//! no message is gone without it.

use std::{os::unix::process::ExitStatusExt as _, process::Stdio};

use holdfast_tests::{
    auth,
    client::event,
    scene::{QUEUES, SERVICE, Scene},
    server::{EXCHANGE, ServerInProcess},
    wait::{self, LONG},
};
use lapin::{
    Connection, ConnectionProperties,
    options::{ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::process::{Child, Command};

const STEPS: [&str; 10] = [
    "received",
    "begun",
    "ticket",
    "asking",
    "told",
    "effect",
    "committing",
    "committed",
    "completed",
    "acked",
];

/// The consumed queue, bound to everything.
pub(super) async fn queue(scene: &Scene) {
    let connection = Connection::connect(&scene.vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(QUEUES[0].into(), durable, FieldTable::default()).await.unwrap();
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(QUEUES[0].into(), EXCHANGE.into(), "#".into(), options, arguments).await.unwrap();
    connection.close(200, "bye".into()).await.unwrap();
}

/// A consumer in a process of its own, which ends with the test at the latest.
pub(super) fn consumer(
    scene: &Scene,
    server: &ServerInProcess,
    asynchronous: bool,
    dies_at: Option<&str>,
) -> Child {
    let test = std::env::current_exe().unwrap();
    let program =
        test.ancestors().skip(1).take(2).map(|dir| dir.join("bare-consumer")).find(|path| path.is_file());
    let mut command = Command::new(program.expect("the bare consumer's binary"));
    command
        .args([&scene.database.url(), &server.address().to_string(), &scene.vhost.url(), QUEUES[0]])
        .args(dies_at)
        .env(auth::KEYS, auth::folder())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if asynchronous {
        command.env("ASYNCHRONOUS", "1");
    }
    command.spawn().unwrap()
}

/// How often each of these had its effect.
pub(super) async fn effects(scene: &Scene, id: &str) -> i64 {
    scene.database.one(&format!("SELECT count(*) FROM app_rows WHERE note = '{id}'")).await
}

/// Waits until every message has its mark and the queue has nothing left, not even in somebody's hands.
pub(super) async fn all_consumed(scene: &Scene, ids: &[String]) {
    let marked = "SELECT count(*) FROM holdfast.event_inbox WHERE processed_at IS NOT NULL";
    let wanted = i64::try_from(ids.len()).unwrap();
    wait::until_equal("processed messages", LONG, wanted, || scene.database.one::<i64>(marked)).await;
    wait::until("an empty queue", LONG, || async {
        let left = scene.vhost.queue_depth(QUEUES[0]).await;
        if left == Some(0) { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn invariant_11_a_consumer_killed_at_any_step_has_had_the_effect_once() {
    let scene = Scene::start().await;
    queue(&scene).await;
    for step in STEPS {
        let id = scene.commit(&event("order.placed")).await;
        let mut dying = consumer(&scene, &scene.server, false, Some(step));
        let status = tokio::time::timeout(LONG, dying.wait()).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9), "{step}");
        // Nothing is gone before its effect is there.
        wait::until("the message or its effect", LONG, || async {
            // (The broker tells of a queue a moment late.)
            let (left, there) = (scene.vhost.queue_depth(QUEUES[0]).await, effects(&scene, &id).await);
            if there == 1 || left.is_some_and(|left| left > 0) { Ok(()) } else { Err((left, there)) }
        })
        .await;

        let mut living = consumer(&scene, &scene.server, false, None);
        let marked = format!(
            "SELECT count(*) FROM holdfast.event_inbox WHERE envelope_id = '{id}' AND processed_at IS NOT NULL"
        );
        wait::until_equal("the mark", LONG, 1, || scene.database.one::<i64>(&marked)).await;
        wait::until("an empty queue", LONG, || async {
            let left = scene.vhost.queue_depth(QUEUES[0]).await;
            if left == Some(0) { Ok(()) } else { Err(left) }
        })
        .await;
        living.kill().await.unwrap();

        assert_eq!(effects(&scene, &id).await, 1, "killed at {step}");
    }
    scene.end(STEPS.len()).await;
}

#[tokio::test]
async fn invariant_11_two_consumers_with_two_replicas_and_a_queue_that_says_everything_twice_have_each_effect_once()
 {
    let scene = Scene::start().await;
    queue(&scene).await;
    let second = ServerInProcess::start(&scene.config).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(scene.commit(&event("order.placed")).await);
    }
    // Everything again, as a publisher does that did not get its confirm.
    let published =
        "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL AND NOT is_head";
    let wanted = i64::try_from(ids.len()).unwrap();
    wait::until_equal("published events", LONG, wanted, || scene.database.one::<i64>(published)).await;
    let twice = "UPDATE holdfast.event_outbox SET published_at = NULL, admitted_at = NULL, claim_generation = claim_generation + 1";
    scene.database.run(twice).await;

    let mut consumers: Vec<Child> = [&scene.server, &second, &scene.server, &second]
        .into_iter()
        .map(|server| consumer(&scene, server, false, None))
        .collect();
    scene.consumer.wait_for(2 * ids.len(), LONG).await;
    // One of them dies in the middle of it, of whatever it is doing.
    consumers[0].kill().await.unwrap();

    all_consumed(&scene, &ids).await;
    for id in &ids {
        assert_eq!(effects(&scene, id).await, 1, "{id}");
    }
    for mut consumer in consumers {
        let _ = consumer.kill().await;
    }
    second.stop().await;
    let service = format!("service=\"{SERVICE}\"");
    assert!(scene.server.metric("holdfast_inbox_begins_total", &service) > 0.0);
    scene.end(ids.len()).await;
}
