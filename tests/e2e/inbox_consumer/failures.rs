//! Handlers that fail, each way: rolled back, counted, tried again, and dead-lettered in the end.

use holdfast_tests::{client::event, scene::Scene, wait::LONG};

use super::*;

const FAILED: &str = "the handler failed";

/// Two failures of this kind, then success: one effect, and so many counted.
async fn recovers(how: How, bad: Do, failures: &str, lost_starts: &str) {
    let scene = Scene::start().await;
    scene.logs.expect(FAILED);
    let change = |b: ConsumerBuilder| b.handler_timeout(Duration::from_millis(300));
    let running =
        Running::start(&scene, how, change, move |run| if run < 3 { bad.clone() } else { Do::Fine }).await;

    let id = scene.commit(&event("order.placed")).await;

    is_processed(&scene.database, &id).await;
    wait_for_empty(&scene).await;
    assert_eq!((running.book.runs(&id), effects(&scene.database, &id).await), (3, 1), "{how:?}");
    assert_eq!(consumption(&scene.database, &id, "failures").await, failures, "{how:?}");
    assert_eq!(consumption(&scene.database, &id, "lost_starts").await, lost_starts, "{how:?}");
    running.stop().await;
    scene.end(1).await;
}

#[tokio::test]
async fn an_error_is_rolled_back_counted_and_tried_again() {
    for how in ALL {
        recovers(how, Do::Retry, "2", "0").await;
    }
}

#[tokio::test]
async fn what_is_given_back_is_tried_again_and_not_counted() {
    for how in ALL {
        recovers(how, Do::GiveBack, "0", "0").await;
    }
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_dropped_at_its_time_limit_and_counted() {
    for how in ALL {
        recovers(how, Do::Hang, "2", "0").await;
    }
}

#[tokio::test]
async fn a_handler_that_panics_costs_an_attempt_and_not_the_consumer() {
    for how in ALL {
        recovers(how, Do::Panic, "2", "0").await;
    }
}

#[tokio::test]
async fn a_handler_that_says_ok_after_a_failed_statement_is_not_acknowledged() {
    // Its COMMIT would be a rollback without an error: the message would be gone, and its effect, too.
    for how in [How::Ticket, How::InProcess] {
        recovers(how, Do::Swallow, "2", "0").await;
    }
}

async fn is_dead_lettered(how: How, bad: Do, runs: u32) {
    let scene = Scene::start().await;
    scene.logs.expect(FAILED);
    let letters = letters(&scene).await;
    let running = Running::start(&scene, how, |b| b, move |_| bad.clone()).await;

    let id = scene.commit(&event("order.placed")).await;

    let letter = letters.wait_for(1, LONG).await[0].clone();
    wait_for_empty(&scene).await;
    assert_eq!(letter.routing_key, format!("dlq.{QUEUE}"));
    let said = &letter.json["_dlx"];
    assert_eq!((&said["envelope_id"], &said["original_queue"]), (&id.as_str().into(), &QUEUE.into()));
    let epoch = consumption(&scene.database, &id, "floor(extract(epoch FROM received_at))").await;
    assert_eq!(said["token"], format!("dlxcap:{id}:{QUEUE}:{epoch}"));
    assert_eq!((running.book.runs(&id), effects(&scene.database, &id).await), (runs, 0), "{how:?}");
    // Delivered once more it is dead, and known to be; nothing is run, and no second letter.
    let first = scene.consumer.wait_for_ids(&[&id], LONG).await[0].clone();
    put_again(&scene, &first).await;
    wait_for_empty(&scene).await;
    // A newer cycle begins a new series, under another token.
    let mut headers = first.properties.headers().clone().unwrap_or_default();
    headers.insert("x-holdfast-cycle".into(), lapin::types::AMQPValue::LongInt(1));
    put(&scene, first.properties.clone().with_headers(headers), &first.body).await;
    let both = letters.wait_for(2, LONG).await;
    wait_for_empty(&scene).await;
    assert_eq!((both.len(), running.book.runs(&id)), (2, 2 * runs));
    assert_ne!(both[0].json["_dlx"]["token"], both[1].json["_dlx"]["token"]);
    running.stop().await;
    scene.end(1).await;
}

#[tokio::test]
async fn poison_is_run_five_times_and_ends_as_a_dead_letter_and_not_in_a_loop() {
    for how in ALL {
        is_dead_lettered(how, Do::Retry, 5).await;
    }
}

#[tokio::test]
async fn what_no_repetition_helps_is_dead_lettered_at_once() {
    for how in ALL {
        is_dead_lettered(how, Do::DeadLetterNow, 1).await;
    }
}

#[tokio::test]
async fn a_message_without_an_id_is_dead_lettered_by_the_broker() {
    let scene = Scene::start().await;
    scene.logs.expect("without a UUID");
    let letters = letters(&scene).await;
    let running = Running::start(&scene, How::Ticket, |b| b, |_| Do::Fine).await;

    put(&scene, BasicProperties::default().with_message_id("7".into()), b"whatever").await;

    let letter = letters.wait_for(1, LONG).await[0].clone();
    assert_eq!((letter.routing_key, letter.body), (format!("dlq.{QUEUE}"), b"whatever".to_vec()));
    wait_for_empty(&scene).await;
    running.stop().await;
    scene.end(0).await;
}

#[tokio::test]
async fn while_the_server_is_away_messages_wait_and_nothing_is_counted() {
    let scene = Scene::builder().start_process().await;
    scene.logs.expect("a message must wait");
    let running = Running::start(&scene, How::Ticket, |b| b, |_| Do::Fine).await;
    scene.server.sigstop().await;
    let id = Uuid::now_v7().to_string();

    put(&scene, properties(&id), b"{}").await;

    scene.logs.wait_for("a message must wait").await;
    scene.server.sigcont();
    wait_for_effect(&scene.database, &id).await;
    wait_for_empty(&scene).await;
    assert_eq!(
        (running.book.runs(&id), consumption(&scene.database, &id, "failures").await.as_str()),
        (1, "0")
    );
    running.stop().await;
    scene.end(0).await;
}
