//! Who and what is refused.

use holdfast_proto::v1::{
    AmqpProperties, AmqpValue, ConsumeLease, SurfaceDeadLetterRequest, amqp_value::Kind,
    begin_consume_request::Binding,
};
use holdfast_tests::{
    inbox::{Inbox, delivery, lease},
    scene::{SERVICE, Scene},
};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{id, reason};

#[tokio::test]
async fn a_queue_that_is_not_the_services_is_refused_by_name() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let mut asked = delivery(&id(), lease(60));
    asked.consumer_queue = "billing.invoices".to_owned();

    let refused = inbox.try_begin(asked).await.unwrap_err();

    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(reason(&refused), ("QUEUE_NOT_CONFIGURED".into(), "no".into()));
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (info.metadata["queue"].as_str(), info.metadata["service"].as_str()),
        ("billing.invoices", SERVICE)
    );
    let token = format!("dlxcap:{}:billing.invoices:1", id());
    let refused = inbox.try_surface(&token, b"{}").await.unwrap_err();
    assert_eq!(reason(&refused).0, "QUEUE_NOT_CONFIGURED");
    scene.end(0).await;
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_delivery_is_told_at_once() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let mut asked = delivery("nonsense", Binding::Lease(ConsumeLease::default()));
    asked.consumer_queue = "with a blank".to_owned();
    asked.event_type = "x".repeat(256);
    (asked.replay_id, asked.cycle) = ("no uuid".to_owned(), -1);

    let refused = inbox.try_begin(asked).await.unwrap_err();

    let bad = refused.get_details_bad_request().unwrap();
    let mut fields: Vec<&str> = bad.field_violations.iter().map(|one| one.field.as_str()).collect();
    fields.sort_unstable();
    let expected = [
        "consumer_queue",
        "cycle",
        "envelope_id",
        "event_type",
        "lease.duration",
        "lease.token",
        "replay_id",
    ];
    assert_eq!(fields, expected);
    for (seconds, nanos) in [(0, 999_999_999), (43_200, 1), (-5, 0), (i64::MAX, i32::MAX)] {
        let Binding::Lease(mut bad) = lease(1) else { unreachable!() };
        bad.duration = Some(prost_types::Duration { seconds, nanos });
        let refused = inbox.try_begin(delivery(&id(), Binding::Lease(bad))).await.unwrap_err();
        assert_eq!(reason(&refused).0, "INVALID_REQUEST", "{seconds} {nanos}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_binding_is_required_and_a_ticket_of_zero_is_none() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let mut asked = delivery(&id(), Binding::Ticket(0));

    let refused = inbox.try_begin(asked.clone()).await.unwrap_err();
    assert_eq!(reason(&refused).0, "TICKET_MISSING");

    asked.binding = None;
    let refused = inbox.try_begin(asked).await.unwrap_err();
    assert_eq!(reason(&refused).0, "INVALID_REQUEST");
    scene.end(0).await;
}

#[tokio::test]
async fn what_nobody_has_begun_can_be_neither_ended_nor_looked_at() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());

    let complete = inbox.try_complete(&id, 1).await.unwrap_err();
    let fail = inbox.try_fail(&id, 1, holdfast_proto::v1::FailKind::Error).await.unwrap_err();
    let get = inbox.try_get(&id).await.unwrap_err();
    let surface = inbox.try_surface(&format!("dlxcap:{id}:orders.payments:1"), b"{}").await.unwrap_err();

    for refused in [complete, fail, get, surface] {
        assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
        assert_eq!(reason(&refused).0, "CONSUMPTION_NOT_FOUND");
    }
    let refused = inbox.try_complete(&id, 0).await.unwrap_err();
    assert_eq!(reason(&refused).0, "INVALID_REQUEST");
    scene.end(0).await;
}

#[tokio::test]
async fn a_letter_that_is_too_large_or_has_a_token_that_is_none_is_refused() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let token = inbox.condemned(&id).await.token;

    let large = inbox.try_surface(&token, &vec![b'x'; 4 * 1024 * 1024 + 1]).await.unwrap_err();
    assert_eq!(large.code(), Code::ResourceExhausted);
    assert_eq!(reason(&large), ("TOO_LARGE".into(), "no".into()));
    let header = AmqpValue { kind: Some(Kind::Text("x".repeat(70_000))) };
    let properties =
        AmqpProperties { headers: [("h".to_owned(), header)].into(), ..AmqpProperties::default() };
    let request = SurfaceDeadLetterRequest {
        service: SERVICE.to_owned(),
        token,
        properties: Some(properties),
        ..SurfaceDeadLetterRequest::default()
    };
    let large = inbox.raw.clone().surface_dead_letter(request).await.unwrap_err();
    assert_eq!(reason(&large).0, "TOO_LARGE");

    for bad in ["", "dlxcap:x:y:z", &format!("xdeath:{id}:orders.payments:1")] {
        let refused = inbox.try_surface(bad, b"{}").await.unwrap_err();
        assert_eq!(reason(&refused).0, "INVALID_REQUEST", "{bad:?}");
    }
    scene.end(0).await;
}
