//! The three modes: an event that commits takes effect once, and is acknowledged, however often it is delivered.

use holdfast_tests::{client::event, scene::Scene, wait::LONG};

use super::*;

async fn takes_effect_once(how: How) {
    let scene = Scene::start().await;
    let running = Running::start(&scene, how, |b| b, |_| Do::Fine).await;

    let id = scene.commit(&event("order.placed")).await;

    wait_for_effect(&scene.database, &id).await;
    wait_for_empty(&scene).await;
    is_processed(&scene.database, &id).await;
    // Again, from elsewhere: acknowledged, not run.
    let first = scene.consumer.wait_for_ids(&[&id], LONG).await[0].clone();
    put_again(&scene, &first).await;
    put_again(&scene, &first).await;
    let marker = scene.commit(&event("order.placed")).await;
    wait_for_effect(&scene.database, &marker).await;
    wait_for_empty(&scene).await;
    assert_eq!((running.book.runs(&id), effects(&scene.database, &id).await), (1, 1), "{how:?}");
    running.stop().await;
    assert_eq!(scene.end(2).await.published, 2);
}

#[tokio::test]
async fn with_a_ticket_a_message_takes_effect_once_however_often_it_comes() {
    takes_effect_once(How::Ticket).await;
}

#[tokio::test]
async fn in_process_a_message_takes_effect_once_however_often_it_comes() {
    takes_effect_once(How::InProcess).await;
}

#[tokio::test]
async fn with_a_lease_a_message_that_was_completed_is_not_run_again() {
    takes_effect_once(How::Lease).await;
}

#[tokio::test]
async fn invariant_11_two_consumers_of_each_mode_share_a_hundred_messages_and_their_copies() {
    let scene = Scene::start().await;
    let mut running = Vec::new();
    for how in [How::Ticket, How::InProcess, How::Ticket, How::InProcess] {
        running.push(Running::start(&scene, how, |b| b.prefetch(10), |_| Do::Fine).await);
    }
    let events: Vec<_> = (0..100).map(|_| event("order.placed")).collect();

    scene.commit_all(&events).await;
    let seen = scene.consumer.wait_for(100, LONG).await;
    for delivery in seen.iter().step_by(3) {
        put_again(&scene, delivery).await;
    }

    for event in &events {
        wait_for_effect(&scene.database, &event.id).await;
    }
    wait_for_empty(&scene).await;
    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM app_rows").await, 100);
    for one in running {
        one.stop().await;
    }
    scene.end(100).await;
}

#[tokio::test]
async fn what_a_handler_stages_in_its_transaction_is_delivered_with_the_effect() {
    let scene = Scene::start().await;
    let outbox = holdfast_tests::client::outbox(scene.server.address(), SERVICE);
    let pool = pool(&scene.database, 4).await;
    let stop = CancellationToken::new();
    let consumer = Consumer::builder(inbox(scene.server.address(), SERVICE), scene.vhost.url(), QUEUE)
        .bind(EXCHANGE, "order.*")
        .in_tx(pool, move |tx, message| {
            let outbox = outbox.clone();
            Box::pin(async move {
                effect(tx, message.id()).await?;
                let paid = holdfast_client::outbox::event("invoice.paid").causation_id(message.id());
                outbox.stage_in_tx(tx, [paid]).await?;
                Ok(())
            })
        })
        .unwrap();
    let task = tokio::spawn(consumer.run(stop.clone().cancelled_owned()));
    scene.logs.wait_for("consuming").await;

    let id = scene.commit(&event("order.placed")).await;

    let seen = scene.consumer.wait_for(2, LONG).await;
    let paid = seen.iter().find(|one| one.routing_key == "invoice.paid").unwrap();
    assert_eq!(paid.json["causationid"], *id);
    assert_eq!(effects(&scene.database, &id).await, 1);
    wait_for_empty(&scene).await;
    stop.cancel();
    task.await.unwrap().unwrap();
    scene.end(2).await;
}
