//! A consumer in Python, in ticket mode: pika, psycopg and the inbox by reflection, in a file that people may copy
//! (`tests/python/inbox_consumer.py`). Its effect is a row of `app_rows` with the message's id as the note.

use std::{os::unix::process::ExitStatusExt as _, process::Output};

use holdfast_proto::v1::ConsumptionState;
use holdfast_tests::{
    client::event,
    inbox::Inbox,
    scene::{QUEUES, Scene},
    server::EXCHANGE,
    wait::{self, LONG},
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};

use super::python;
use crate::inbox_consumer::{DLX, consumption, effects, letters, put, wait_for_empty};

const QUEUE: &str = QUEUES[0];

/// The consumed queue with its dead-letter arguments, bound to everything.
async fn declare(scene: &Scene) {
    let connection = Connection::connect(&scene.vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(DLX.into()));
    arguments
        .insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(format!("dlq.{QUEUE}").into()));
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(QUEUE.into(), durable, arguments).await.unwrap();
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(QUEUE.into(), EXCHANGE.into(), "#".into(), options, arguments).await.unwrap();
    connection.close(200, "bye".into()).await.unwrap();
}

/// Consumes until so many messages are settled, or it dies.
async fn consume(scene: &Scene, name: &str, messages: u32) -> Output {
    let mut command = python::command("consumer_scenes.py", name, scene);
    command.args([&scene.vhost.url(), QUEUE, &messages.to_string()]);
    tokio::time::timeout(LONG * 2, command.output()).await.unwrap().unwrap()
}

/// How each message was settled.
fn saw(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn what_python_consumes_has_its_effect_once_and_is_remembered() {
    let scene = Scene::start().await;
    declare(&scene).await;
    let events = [event("order.placed"), event("order.paid")];
    scene.commit_all(&events).await;

    let saw = saw(&consume(&scene, "consume", 2).await);

    assert_eq!(saw, json!([[events[0].id, "processed"], [events[1].id, "processed"]]));
    for event in &events {
        assert_eq!(effects(&scene.database, &event.id).await, 1);
        let row = Inbox::of(&scene).get(&event.id).await;
        assert_eq!((row.event_type.as_str(), row.source_service.as_str()), (event.r#type.as_str(), "orders"));
    }
    wait_for_empty(&scene).await;
    scene.end(2).await;
}

#[tokio::test]
async fn invariant_11_python_killed_between_commit_and_ack_has_had_the_effect_once() {
    let scene = Scene::start().await;
    declare(&scene).await;
    let id = scene.commit(&event("order.placed")).await;

    let died = consume(&scene, "die", 1).await;
    assert_eq!(died.status.signal(), Some(9), "{}", String::from_utf8_lossy(&died.stderr));
    assert_eq!(effects(&scene.database, &id).await, 1);
    let saw = saw(&consume(&scene, "consume", 1).await);

    assert_eq!(saw, json!([[id, "duplicate"]]));
    assert_eq!(effects(&scene.database, &id).await, 1);
    assert_eq!(Inbox::of(&scene).get(&id).await.state(), ConsumptionState::Processed);
    wait_for_empty(&scene).await;
    scene.end(1).await;
}

/// Every run fails: the message ends as a dead letter under the inbox's token, without an effect.
async fn is_dead_lettered(name: &str, failures: &str) {
    let scene = Scene::start().await;
    declare(&scene).await;
    let letters = letters(&scene).await;
    let id = scene.commit(&event("order.placed")).await;

    let saw = saw(&consume(&scene, name, 1).await);

    assert_eq!(saw, json!([[id, "dead_lettered"]]), "{name}");
    let letter = letters.wait_for(1, LONG).await[0].clone();
    let epoch = consumption(&scene.database, &id, "floor(extract(epoch FROM received_at))").await;
    assert_eq!(letter.json["_dlx"]["token"], format!("dlxcap:{id}:{QUEUE}:{epoch}"), "{name}");
    assert_eq!(letter.json["_dlx"]["original_queue"], QUEUE, "{name}");
    assert_eq!(effects(&scene.database, &id).await, 0, "{name}");
    assert_eq!(consumption(&scene.database, &id, "failures").await, failures, "{name}");
    wait_for_empty(&scene).await;
    scene.end(1).await;
}

#[tokio::test]
async fn python_s_poison_is_tried_five_times_and_ends_as_a_dead_letter() {
    is_dead_lettered("broken", "5").await;
}

#[tokio::test]
async fn what_python_s_handler_gives_up_is_a_dead_letter_at_once() {
    is_dead_lettered("hopeless", "1").await;
}

#[tokio::test]
async fn a_python_handler_that_swallows_a_failed_statement_is_not_acknowledged() {
    is_dead_lettered("swallowing", "5").await;
}

#[tokio::test]
async fn an_asynchronous_default_of_the_role_does_not_reach_python_s_commit() {
    let scene = Scene::start().await;
    declare(&scene).await;
    let name = scene.database.name();
    scene.database.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    let id = scene.commit(&event("order.placed")).await;

    let saw = saw(&consume(&scene, "noting", 1).await);

    assert_eq!(saw, json!([[id, "processed"]]));
    assert_eq!(effects(&scene.database, "synchronous_commit on").await, 1);
    wait_for_empty(&scene).await;
    scene.end(1).await;
}

#[tokio::test]
async fn python_s_poison_that_no_letter_can_hold_is_rejected_and_the_broker_dead_letters_it() {
    let scene = Scene::start().await;
    declare(&scene).await;
    let letters = letters(&scene).await;
    let id = uuid::Uuid::now_v7().to_string();
    // A byte over what SurfaceDeadLetter takes.
    let body = vec![b' '; 4 * 1024 * 1024 + 1];
    put(&scene, BasicProperties::default().with_message_id(id.as_str().into()), &body).await;

    let saw = saw(&consume(&scene, "hopeless", 1).await);

    assert_eq!(saw, json!([[id, "rejected"]]));
    let letter = letters.wait_for(1, LONG).await[0].clone();
    assert_eq!((letter.id.as_str(), letter.body.len()), (id.as_str(), body.len()));
    assert_eq!(effects(&scene.database, &id).await, 0);
    wait_for_empty(&scene).await;
    scene.end(0).await;
}

#[tokio::test]
async fn what_has_no_id_python_rejects_and_the_broker_dead_letters_it() {
    let scene = Scene::start().await;
    declare(&scene).await;
    let letters = letters(&scene).await;
    put(&scene, BasicProperties::default().with_message_id("17".into()), b"{}").await;
    let id = scene.commit(&event("order.placed")).await;

    let saw = saw(&consume(&scene, "consume", 1).await);

    assert_eq!(saw, json!([[id, "processed"]]));
    let letter = letters.wait_for(1, LONG).await[0].clone();
    assert_eq!((letter.id.as_str(), letter.routing_key), ("17", format!("dlq.{QUEUE}")));
    wait::until_equal("messages in the queue", LONG, Some(0), || scene.vhost.queue_depth(QUEUE)).await;
    scene.end(1).await;
}
