//! Dead letters: the wrapper on the wire, the mark after the confirm, and what is said when the broker is not as it should be.

use holdfast_proto::v1::{
    AmqpProperties, AmqpValue, ConsumptionState, SurfaceDeadLetterRequest, amqp_value::Kind,
};
use holdfast_tests::{
    consumer::Consumer,
    inbox::{Inbox, dead_letter, delivery, lease, process},
    scene::{QUEUES, SERVICE, Scene},
    wait::{self, LONG},
};
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions, QueuePurgeOptions},
    types::FieldTable,
};
use serde_json::json;
use tonic_types::StatusExt as _;

use super::{id, reason};

#[tokio::test]
async fn a_letter_carries_the_message_as_it_was_and_everything_that_is_known_of_its_death() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let letters = Consumer::bound(&scene.vhost.url(), "holdfast.dlx", "dlq.#").await;
    for body in [&b"{\"total\": \"9.90\"}"[..], b"\xff\x00"] {
        let id = id();
        let death = inbox.condemned(&id).await;
        let headers = [("tenant".to_owned(), AmqpValue { kind: Some(Kind::Text("t-1".to_owned())) })];
        let request = SurfaceDeadLetterRequest {
            service: SERVICE.to_owned(),
            token: death.token.clone(),
            body: body.to_vec(),
            properties: Some(AmqpProperties {
                content_type: Some("application/json".to_owned()),
                headers: headers.into(),
                ..AmqpProperties::default()
            }),
            exchange: "holdfast.events".to_owned(),
            routing_key: "order.placed".to_owned(),
        };

        let answer = inbox.raw.clone().surface_dead_letter(request).await.unwrap().into_inner();

        assert!(!answer.already_surfaced && answer.dead_lettered_at.is_some());
        let seen = letters.wait_for_ids(&[&id], LONG).await.pop().unwrap();
        assert_eq!(seen.routing_key, format!("dlq.{}", QUEUES[0]));
        assert_eq!(seen.properties.delivery_mode(), &Some(2));
        let dlx = &seen.json["_dlx"];
        for (field, is) in [
            ("v", json!(1)),
            ("token", json!(death.token)),
            ("envelope_id", json!(id)),
            ("original_queue", json!(QUEUES[0])),
            ("source_service", json!("shop")),
            ("event_type", json!("order.placed")),
            ("cause", json!("asked")),
            ("failures", json!(1)),
            ("lost_starts", json!(0)),
            ("last_error", json!("no such order")),
            ("exchange", json!("holdfast.events")),
            ("routing_key", json!("order.placed")),
            (
                "properties",
                json!({ "content_type": "application/json", "headers": { "tenant": { "text": "t-1" } } }),
            ),
        ] {
            assert_eq!(dlx[field], is, "{field}: {dlx}");
        }
        match std::str::from_utf8(body) {
            Ok(text) => assert_eq!(seen.json["body"], json!(text)),
            Err(_) => assert_eq!(seen.json["body_base64"], json!("/wA=")),
        }
        assert_eq!(inbox.get(&id).await.state(), ConsumptionState::DeadLettered);
        assert!(
            dead_letter(inbox.begin(&id, lease(60)).await).already_surfaced,
            "redelivered before the ack"
        );
    }
    wait::until_equal("what lies behind the queue", LONG, Some(0), || {
        scene.vhost.queue_depth("holdfast.dlq.parking")
    })
    .await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_token_of_another_series_or_of_a_message_that_is_not_dead_is_stale() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let token = inbox.condemned(&id).await.token;
    let mut again = delivery(&id, lease(60));
    again.cycle = 1;
    let begun = process(inbox.try_begin(again).await.unwrap());

    let stale = inbox.try_surface(&token, b"{}").await.unwrap_err();
    assert_eq!(reason(&stale), ("DEAD_LETTER_STALE".into(), "no".into()));

    inbox.try_complete(&id, begun.generation).await.unwrap();
    let stale = inbox.try_surface(&token, b"{}").await.unwrap_err();
    assert_eq!(reason(&stale).0, "DEAD_LETTER_STALE");
    assert_eq!(scene.vhost.queue_depth("holdfast.dlq").await, None, "nothing was published");
    scene.end(0).await;
}

async fn channel(scene: &Scene) -> (Connection, lapin::Channel) {
    let connection = Connection::connect(&scene.vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

#[tokio::test]
async fn a_letter_that_no_queue_takes_is_an_error_and_is_not_marked() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let (first, id) = (id(), id());
    let token = inbox.condemned(&first).await.token;
    inbox.try_surface(&token, b"{}").await.unwrap();
    let (connection, channel) = channel(&scene).await;
    let unbind = channel.queue_unbind(
        "holdfast.dlq".into(),
        "holdfast.dlx".into(),
        "dlq.#".into(),
        FieldTable::default(),
    );
    unbind.await.unwrap();
    let token = inbox.condemned(&id).await.token;

    let refused = inbox.try_surface(&token, b"{}").await.unwrap_err();

    assert_eq!(reason(&refused), ("DEAD_LETTER_UNROUTABLE".into(), "no".into()));
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.metadata["exchange"], "holdfast.dlx");
    assert_eq!(info.metadata["routing_key"], format!("dlq.{}", QUEUES[0]));
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::ToDeadLetter);
    let letters = Consumer::bound(&scene.vhost.url(), "holdfast.dlx", "dlq.#").await;
    inbox.try_surface(&token, b"{}").await.unwrap();
    letters.wait_for_ids(&[&id], LONG).await;
    let _ = connection.close(200, "bye".into()).await;
    scene.end(0).await;
}

#[tokio::test]
async fn what_is_there_with_other_properties_is_named_object_and_argument() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let (connection, channel) = channel(&scene).await;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare("holdfast.dlq".into(), durable, FieldTable::default()).await.unwrap();
    let token = inbox.condemned(&id).await.token;

    let refused = inbox.try_surface(&token, b"{}").await.unwrap_err();

    assert_eq!(reason(&refused), ("TOPOLOGY_MISMATCH".into(), "no".into()));
    for part in ["holdfast.dlq", "x-"] {
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::ToDeadLetter);
    let _ = connection.close(200, "bye".into()).await;
    scene.end(0).await;
}

#[tokio::test]
async fn the_exchange_is_a_setting_and_a_queue_of_somebody_elses_is_left_alone() {
    let scene =
        Scene::builder().set("topology", "dlx", "\"craig.dlx\"").set("topology", "dlq", "\"\"").start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let letters = Consumer::bound(&scene.vhost.url(), "craig.dlx", "dlq.#").await;
    let token = inbox.condemned(&id).await.token;

    inbox.try_surface(&token, b"{}").await.unwrap();

    letters.wait_for_ids(&[&id], LONG).await;
    assert_eq!(scene.vhost.queue_depth("holdfast.dlq").await, None);
    scene.end(0).await;
}

#[tokio::test]
async fn an_exchange_of_another_kind_is_named() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let (connection, channel) = channel(&scene).await;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel
        .exchange_declare("holdfast.dlx".into(), ExchangeKind::Fanout, durable, FieldTable::default())
        .await
        .unwrap();
    let token = inbox.condemned(&id).await.token;

    let refused = inbox.try_surface(&token, b"{}").await.unwrap_err();

    assert_eq!(reason(&refused).0, "TOPOLOGY_MISMATCH");
    assert!(refused.message().contains("exchange \"holdfast.dlx\""), "{}", refused.message());
    let _ = connection.close(200, "bye".into()).await;
    scene.end(0).await;
}

#[tokio::test]
async fn while_the_broker_is_away_a_letter_waits_and_goes_out_when_it_is_back() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    scene.logs.expect("broker");
    let (inbox, id) = (Inbox::of(&scene), id());
    let token = inbox.condemned(&id).await.token;
    scene.broker_proxy().away().await;

    let refused = wait::until("a refusal", LONG, || async {
        match inbox.try_surface(&token, b"{}").await {
            Err(status) => Ok(status),
            Ok(answer) => Err(format!("{answer:?}")),
        }
    })
    .await;

    assert_eq!(reason(&refused).0, "BROKER_UNAVAILABLE");
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::ToDeadLetter);
    scene.broker_proxy().pass().await;
    wait::until("the letter to go", LONG, || async {
        inbox.try_surface(&token, b"{}").await.map_err(|status| status.message().to_owned())
    })
    .await;
    let (connection, channel) = channel(&scene).await;
    let purged = channel.queue_purge("holdfast.dlq".into(), QueuePurgeOptions::default()).await.unwrap();
    assert!(purged >= 1);
    let _ = connection.close(200, "bye".into()).await;
    scene.end(0).await;
}
