//! What is refused at staging, over the wire: every rule by its field path, all violations of a request at once, and
//! nothing written (design, section 2).

use holdfast_proto::v1::{ConfirmStagedRequest, Event, GetEventRequest, Hold, StageInTxRequest, event::Data};
use holdfast_tests::{client::event, reconcile::reconcile, scene::Scene};
use prost_types::Timestamp;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::refusal;

fn json(text: &str) -> Event {
    Event { data: Some(Data::Json(text.to_owned())), ..event("order.placed") }
}

fn placed(change: impl FnOnce(&mut Event)) -> Event {
    let mut event = event("order.placed");
    change(&mut event);
    event
}

fn extension(name: &str, value: &str) -> Event {
    placed(|e| drop(e.extensions.insert(name.to_owned(), value.to_owned())))
}

fn fields(status: &Status) -> Vec<String> {
    let listed = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    listed.into_iter().map(|violation| violation.field).collect()
}

/// One event a rule, and the path that it is answered with.
fn broken() -> Vec<(Event, &'static str)> {
    let deep = |n: usize| json(&format!("{}{}", "[".repeat(n), "]".repeat(n)));
    vec![
        (placed(|e| e.id = "no uuid".into()), "id"),
        (placed(|e| e.id = "urn:uuid:0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11".into()), "id"),
        (placed(|e| e.r#type = String::new()), "type"),
        (placed(|e| e.r#type = "a".repeat(256)), "type"),
        (placed(|e| e.r#type = "order placed".into()), "type"),
        (placed(|e| e.r#type = "bestellung.übergeben".into()), "type"),
        (placed(|e| e.subject = "s".repeat(1025)), "subject"),
        (placed(|e| e.subject = "a\0b".into()), "subject"),
        (placed(|e| e.data_content_type = "json".into()), "data_content_type"),
        (placed(|e| e.ordering_key = Some("k".repeat(1025))), "ordering_key"),
        (placed(|e| e.ordering_key = Some("a\u{ffff}".into())), "ordering_key"),
        (placed(|e| e.traceparent = "\u{7f}".into()), "traceparent"),
        (placed(|e| e.tracestate = "t".repeat(64 * 1024 + 1)), "tracestate"),
        (placed(|e| e.correlation_id = "\n".into()), "correlation_id"),
        (placed(|e| e.causation_id = "\u{fdd0}".into()), "causation_id"),
        (placed(|e| e.time = Some(Timestamp { seconds: 0, nanos: -1 })), "time"),
        (placed(|e| e.time = Some(Timestamp { seconds: 0, nanos: i32::MAX })), "time"),
        (placed(|e| e.time = Some(Timestamp { seconds: i64::MAX, nanos: 0 })), "time"),
        (placed(|e| e.time = Some(Timestamp { seconds: i64::MIN, nanos: 0 })), "time"),
        (extension("data", "x"), "extensions.data"),
        (extension("Upper", "x"), "extensions"),
        (extension("", "x"), "extensions"),
        (extension("region", "a\0"), "extensions.region"),
        (json(""), "json"),
        (json("{"), "json"),
        (json("1 2"), "json"),
        (json("NaN"), "json"),
        (json(r#""\u0000""#), "json"),
        (json(r#"{"a\u0000":1}"#), "json"),
        (json(r#""\ud800""#), "json"),
        (json(r#"{"\udc00":1}"#), "json"),
        (json(r#"{"a":1,"a":2}"#), "json"),
        (json(r#"{"x":{"a":1,"\u0061":2}}"#), "json"),
        (deep(65), "json"),
        (json("1E400"), "json"),
        (json("1e-100"), "json"),
        (json(&"9".repeat(101)), "json"),
        (json(&format!("1e{}", "9".repeat(40))), "json"),
    ]
}

#[tokio::test]
async fn every_rule_is_answered_by_its_field_path_and_nothing_is_written() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for (broken, field) in broken() {
        let what = format!("{broken:?}").chars().take(200).collect::<String>();

        let status = scene.client.try_stage(ticket, &[event("order.placed"), broken]).await.unwrap_err();

        assert_eq!(fields(&status), [format!("events[1].{field}")], "{what}");
        assert_eq!(refusal::<()>(Err(status)), (Code::InvalidArgument, "INVALID_REQUEST".into()), "{what}");
    }
    reconcile(&scene.database, 0).await;
    caller.commit().await;
    scene.end(0).await;
}

#[tokio::test]
async fn all_violations_of_a_request_are_listed_at_once() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let twice = event("order.placed");
    let events = [
        placed(|e| (e.id, e.r#type) = ("x".into(), String::new())),
        twice.clone(),
        Event { subject: "a\0".into(), ..json("{") },
        twice,
    ];

    let status = scene.client.try_stage(ticket, &events).await.unwrap_err();

    let wanted = ["events[0].id", "events[0].type", "events[2].subject", "events[2].json", "events[3].id"];
    assert_eq!(fields(&status), wanted);
    reconcile(&scene.database, 0).await;
    caller.commit().await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_missing_ticket_and_a_bad_service_are_listed_beside_the_events_violations() {
    let scene = Scene::start().await;
    let bad = placed(|e| e.r#type = String::new());

    let status = scene.client.try_stage(0, std::slice::from_ref(&bad)).await.unwrap_err();
    assert_eq!(fields(&status), ["ticket", "events[0].type"]);
    assert_eq!(refusal::<()>(Err(status)), (Code::InvalidArgument, "TICKET_MISSING".into()));

    for (service, reason) in [
        ("", "INVALID_REQUEST"),
        ("Orders", "INVALID_REQUEST"),
        ("or.ders", "INVALID_REQUEST"),
        (&*"o".repeat(64), "INVALID_REQUEST"),
        ("holdfast", "RESERVED_SERVICE"),
        ("payload", "RESERVED_SERVICE"),
        ("holdfast-control", "RESERVED_SERVICE"),
    ] {
        let request = StageInTxRequest {
            service: service.to_owned(),
            ticket: 0,
            events: vec![bad.clone()],
            hold: None,
        };
        let status = scene.client.raw.clone().stage_in_tx(request).await.unwrap_err();
        assert_eq!(fields(&status), ["service", "ticket", "events[0].type"], "{service:?}");
        assert_eq!(refusal::<()>(Err(status)), (Code::InvalidArgument, reason.to_owned()), "{service:?}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_request_has_one_to_a_thousand_events() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events: Vec<Event> = (0..1001).map(|_| event("order.placed")).collect();

    for wrong in [&events[..0], &events[..]] {
        let status = scene.client.try_stage(ticket, wrong).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["events".to_owned()]));
    }

    scene.client.stage(ticket, &events[..1000]).await;
    caller.commit().await;
    assert_eq!(scene.end(1000).await.published, 1000);
}

#[tokio::test]
async fn a_thousand_bad_events_are_answered_with_a_bounded_list_and_the_full_count() {
    let scene = Scene::start().await;
    let events: Vec<Event> = (0..1000).map(|_| placed(|e| e.r#type = "\u{fc}".repeat(300))).collect();

    let status = scene.client.try_stage(1, &events).await.unwrap_err();

    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(fields(&status).len() <= 50 && !fields(&status).is_empty());
    assert!(status.message().starts_with("2000 violations") && status.message().len() <= 1024, "{status}");
    scene.end(0).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_hold_is_told_beside_the_rest_and_nothing_is_written() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let hold = Some(Hold { operation_id: "a\0b".into(), generation: -1 });
    let events = vec![Event { r#type: String::new(), ..event("") }];
    let request = StageInTxRequest { service: "orders".into(), ticket, events, hold };

    let status = scene.client.raw.clone().stage_in_tx(request).await.unwrap_err();

    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["hold.operation_id", "hold.generation", "events[0].type"]);
    caller.commit().await;
    scene.end(0).await;
}

#[tokio::test]
async fn every_call_refuses_an_unknown_and_a_reserved_service() {
    let scene = Scene::start().await;
    for (service, code, reason) in [
        ("nobody", Code::NotFound, "UNKNOWN_SERVICE"),
        ("holdfast-control", Code::InvalidArgument, "RESERVED_SERVICE"),
        ("payload", Code::InvalidArgument, "RESERVED_SERVICE"),
    ] {
        let wanted = (code, reason.to_owned());
        let mut raw = holdfast_tests::client::Client::new(scene.server.address(), service).raw;
        let service = service.to_owned();
        let events = vec![event("order.placed")];
        let request = StageInTxRequest { service: service.clone(), ticket: 1, events, hold: None };
        assert_eq!(refusal(raw.stage_in_tx(request).await), wanted, "{service}");
        let request = ConfirmStagedRequest { service: service.clone(), ticket: 1 };
        assert_eq!(refusal(raw.confirm_staged(request).await), wanted, "{service}");
        let request = GetEventRequest { service: service.clone(), id: event("a").id };
        assert_eq!(refusal(raw.get_event(request).await), wanted, "{service}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_confirm_without_a_ticket_is_refused_and_an_unknown_one_is_not() {
    let scene = Scene::start().await;
    let request = ConfirmStagedRequest { service: "orders".into(), ticket: 0 };

    let refused = refusal(scene.client.raw.clone().confirm_staged(request).await);

    assert_eq!(refused, (Code::InvalidArgument, "TICKET_MISSING".to_owned()));
    scene.client.confirm(4711).await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_look_up_of_what_is_no_id_or_not_there_says_which() {
    let scene = Scene::start().await;
    for bad in ["", "x", "0198c2a57d1e7c439d0c2f6f0f0c9a11"] {
        let status = scene.client.get(bad).await.unwrap_err();
        assert_eq!(
            (status.code(), fields(&status)),
            (Code::InvalidArgument, vec!["id".to_owned()]),
            "{bad:?}"
        );
    }
    let refused = refusal(scene.client.get(&event("a").id).await);
    assert_eq!(refused, (Code::NotFound, "EVENT_NOT_FOUND".to_owned()));
    scene.end(0).await;
}

#[tokio::test]
async fn every_refusal_says_its_domain_its_service_and_that_nothing_was_applied() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let secret = "hunter2".repeat(200);
    let first = Event { data: Some(Data::Json(format!("\"{secret}\""))), ..event("order.placed") };
    scene.client.stage(ticket, std::slice::from_ref(&first)).await;
    let conflict = Event { subject: "hunter2".to_owned(), ..first };
    let rows = [
        (scene.client.try_stage(ticket, &[conflict]).await, Code::AlreadyExists),
        (scene.client.try_stage(4711, &[event("a")]).await, Code::FailedPrecondition),
        (scene.client.try_stage(ticket, &[json(&secret)]).await, Code::InvalidArgument),
        (scene.client.try_stage(ticket, &[extension(&secret, &secret)]).await, Code::InvalidArgument),
        (
            scene.client.try_stage(ticket, &[placed(|e| e.r#type = secret.clone() + " ")]).await,
            Code::InvalidArgument,
        ),
    ];
    for (answer, code) in rows {
        let status = answer.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.domain, "holdfast.v1");
        assert_eq!((info.metadata["service"].as_str(), info.metadata["applied"].as_str()), ("orders", "no"));
        assert!(!info.reason.is_empty() && status.message().len() <= 1024, "{status}");
        let all = format!("{:?}", status.get_error_details());
        assert!(!status.message().contains("hunter2") && !all.contains("hunter2"), "{status} {all}");
    }
    caller.commit().await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_fault_of_the_database_is_internal_and_logged_without_the_payload() {
    let scene = Scene::start().await;
    scene
        .database
        .run(
            "CREATE FUNCTION public.fault() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'hunter2 %', NEW.envelope; END $$;
             CREATE TRIGGER fault BEFORE INSERT ON holdfast.event_outbox FOR EACH ROW
                 EXECUTE FUNCTION public.fault()",
        )
        .await;
    scene.logs.expect("a call failed through a fault of the server");
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let status = scene.client.try_stage(ticket, &[event("order.placed")]).await.unwrap_err();

    assert_eq!(status.get_details_error_info().unwrap().metadata["applied"], "unknown");
    assert_eq!(refusal::<()>(Err(status)), (Code::Internal, "INTERNAL".to_owned()));
    let line = scene.logs.wait_for("a call failed through a fault of the server").await.text;
    assert!(line.contains("P0001") && !line.contains("hunter2"), "{line}");
    caller.commit().await;
    scene.end(0).await;
}
