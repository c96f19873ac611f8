//! Events that no queue takes, and messages that a queue refuses: a confirm is not enough (pitfalls: unroutable with
//! `mandatory` arrives as an ack that carries the message back).

use holdfast_proto::v1::{Event, EventState, event::Data};
use holdfast_tests::{
    client::{event, keyed},
    scene::Scene,
    server::EXCHANGE,
    wait::{self, LONG},
};
use lapin::{
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

use super::{NOBODY, amqp, bind, row, row_is, unbind};

#[tokio::test]
async fn an_unroutable_event_stays_pending_with_its_error_until_a_queue_is_bound() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    let id = scene.commit(&event(NOBODY)).await;

    let failed = row_is(&scene.database, &id, "returned", |row| row.attempts > 0 && !row.claimed).await;

    assert!(!failed.published && failed.backing_off && failed.error.contains("NO_ROUTE"), "{failed:?}");
    assert!(scene.server.metric("holdfast_unroutable_total", "orders") >= 1.0);
    assert_eq!(scene.consumer.ids(), [""; 0]);
    bind(&scene, NOBODY).await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    assert_eq!(row(&scene.database, &id).await.error, "");
    scene.end(1).await;
}

#[tokio::test]
async fn an_unroutable_event_counts_as_published_where_the_service_accepts_that() {
    let scene = Scene::builder().set("services.orders", "unroutable", "\"accept\"").start().await;
    unbind(&scene).await;
    let id = scene.commit(&event(NOBODY)).await;

    scene.client.wait_for_state(&id, EventState::Published).await;

    assert!(scene.server.metric("holdfast_unroutable_total", "orders") >= 1.0);
    assert_eq!(row(&scene.database, &id).await.attempts, 0);
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&[""; 0], marker).await;
    scene.end(2).await;
}

/// The client library hands a return to whichever confirm completes next; with a window under way that is mostly another
/// event's.
#[tokio::test]
async fn among_many_under_way_exactly_the_unroutable_events_are_called_unroutable() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    bind(&scene, "somebody.listens").await;
    scene
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT CASE WHEN n % 2 = 0 THEN 'somebody.listens' ELSE '{NOBODY}' END, '{{}}'::jsonb
             FROM generate_series(1, 600) AS n"
        ))
        .await;

    wait::until_equal("events tried", LONG, 600_i64, || async {
        scene
            .database
            .one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL OR attempts > 0")
            .await
    })
    .await;

    let wrong: i64 = scene
        .database
        .one(&format!(
            "SELECT count(*) FROM holdfast.event_outbox
             WHERE CASE WHEN event_type = '{NOBODY}' THEN published_at IS NOT NULL
                        ELSE attempts > 0 OR published_at IS NULL END"
        ))
        .await;
    assert_eq!(wrong, 0);
    bind(&scene, NOBODY).await;
    scene.consumer.wait_for(600, LONG).await;
    scene.end(600).await;
}

#[tokio::test]
async fn the_payload_of_a_returned_message_is_in_no_log() {
    let scene = Scene::builder().start_process().await;
    unbind(&scene).await;
    let secret = "a-payload-that-nobody-may-log";
    let data = Some(Data::Json(format!("{{\"card\":\"{secret}\"}}")));
    let id = scene.commit(&Event { data, ..event(NOBODY) }).await;
    row_is(&scene.database, &id, "returned", |row| row.attempts > 0).await;

    bind(&scene, NOBODY).await;
    let seen = scene.consumer.wait_for_ids(&[&id], LONG).await;

    assert_eq!(seen[0].json["data"]["card"], secret, "the secret was on the way");
    let lines = scene.server.lines();
    assert!(!lines.iter().any(|line| line.contains(secret)), "{lines:#?}");
    scene.end(1).await;
}

#[tokio::test]
async fn a_message_that_a_full_queue_refuses_backs_off_and_goes_out_when_there_is_room() {
    let scene = Scene::start().await;
    let (connection, channel) = amqp(&scene.vhost).await;
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(1));
    full.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    channel.queue_declare("full".into(), QueueDeclareOptions::default(), full).await.unwrap();
    channel
        .queue_bind(
            "full".into(),
            EXCHANGE.into(),
            "full.#".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    let taken = scene.commit(&keyed("full.event", "k")).await;
    scene.client.wait_for_state(&taken, EventState::Published).await;

    let refused = scene.commit(&keyed("full.event", "k")).await;

    let failed = row_is(&scene.database, &refused, "refused", |row| row.attempts > 0 && !row.claimed).await;
    assert!(!failed.published && failed.error.contains("nack"), "{failed:?}");
    let purge = format!("/api/queues/{}/full/contents", scene.vhost.name());
    scene.vhost.ask("DELETE", &purge, None).await;
    scene.client.wait_for_state(&refused, EventState::Published).await;
    connection.close(200, "done".into()).await.unwrap();
    scene.end(2).await;
}
