//! What is refused, and how: reasons, fields, and that a neighbour never suffers.

use holdfast_proto::v1::{
    DropHeldRequest, Event, EventState, ListHeldRequest, Outcome, ReleaseHeldRequest, StagedEvent,
};
use holdfast_tests::{
    client::{event, ids},
    holds::{Holds, commit, pair, try_stage},
    reconcile::reconcile,
    scene::{SERVICE, Scene},
    wait::LONG,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::staging::{gate::Gate, refusal};

fn fields(status: &Status) -> Vec<String> {
    let listed = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    listed.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_decision_the_other_way_is_refused_and_names_what_was_decided() {
    let scene = Scene::start().await;
    let holds = Holds::of(&scene);
    let (released, dropped) = (pair("released", 1), pair("dropped", 1));
    let kept = event("order.placed");
    commit(&scene, &released, std::slice::from_ref(&kept)).await;
    holds.release(&released).await;
    holds.drop_held(&dropped).await;

    for (status, outcome) in [
        (holds.try_drop(&released).await.unwrap_err(), "released"),
        (holds.try_release(&dropped).await.unwrap_err(), "dropped"),
    ] {
        let info = status.get_details_error_info().unwrap();
        assert_eq!((status.code(), info.reason.as_str()), (Code::FailedPrecondition, "HOLD_ALREADY_DECIDED"));
        assert_eq!((info.metadata["outcome"].as_str(), info.metadata["applied"].as_str()), (outcome, "no"));
        assert!(status.message().contains(outcome), "{status}");
    }

    assert_eq!(holds.release(&released).await, (0, true), "what was decided stands");
    scene.client.wait_for_state(&kept.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_by_field_all_at_once() {
    let scene = Scene::start().await;
    let mut raw = Holds::of(&scene).raw;
    let service = "Orders".to_owned();
    let release = ReleaseHeldRequest { service: service.clone(), hold: Some(pair(&"o".repeat(256), -1)) };
    let status = raw.release_held(release).await.unwrap_err();
    assert_eq!(fields(&status), ["hold.operation_id", "hold.generation", "service"]);
    let status = raw.drop_held(DropHeldRequest { service, hold: None }).await.unwrap_err();
    assert_eq!(fields(&status), ["hold", "service"]);
    let list = ListHeldRequest {
        service: SERVICE.to_owned(),
        operation_id: "a\u{7}".to_owned(),
        page_size: 1_001,
        page_token: "1".to_owned(),
    };
    let status = raw.list_held(list.clone()).await.unwrap_err();
    assert_eq!(fields(&status), ["operation_id", "page_size", "page_token"]);
    assert_eq!(status.code(), Code::InvalidArgument);
    let status = raw.list_held(ListHeldRequest { page_size: -1, ..list }).await.unwrap_err();
    assert_eq!(fields(&status).len(), 3);
    for (service, code, reason) in [
        ("nobody", Code::NotFound, "UNKNOWN_SERVICE"),
        ("holdfast-control", Code::InvalidArgument, "RESERVED_SERVICE"),
    ] {
        let hold = Some(pair("op", 1));
        let mut raw = Holds::for_service(scene.server.address(), service).raw;
        let (service, reason) = (service.to_owned(), reason.to_owned());
        let release = ReleaseHeldRequest { service: service.clone(), hold: hold.clone() };
        assert_eq!(refusal(raw.release_held(release).await), (code, reason.clone()));
        let drop = DropHeldRequest { service: service.clone(), hold };
        assert_eq!(refusal(raw.drop_held(drop).await), (code, reason.clone()));
        let list = ListHeldRequest { service, ..ListHeldRequest::default() };
        assert_eq!(refusal(raw.list_held(list).await), (code, reason));
    }
    let decided: i64 = scene.database.one("SELECT count(*) FROM holdfast.hold_outcome").await;
    assert_eq!(decided, 0);
    scene.end(0).await;
}

#[tokio::test]
async fn the_hold_is_part_of_what_makes_two_requests_the_same() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    let one = std::slice::from_ref(&event);
    try_stage(&scene.client, ticket, &pair("op", 1), one).await.unwrap();

    let again = try_stage(&scene.client, ticket, &pair("op", 1), one).await.unwrap();
    assert_eq!(again[0].outcome(), Outcome::Duplicate);
    let conflict = (Code::AlreadyExists, "EVENT_CONFLICT".to_owned());
    assert_eq!(refusal(try_stage(&scene.client, ticket, &pair("op", 2), one).await), conflict);
    assert_eq!(refusal(scene.client.try_stage(ticket, one).await), conflict);

    caller.rollback().await;
    scene.end(1).await;
}

#[tokio::test]
async fn held_requests_share_transactions_and_a_dropped_pair_among_them_fails_nobody_else() {
    let scene = Scene::start().await;
    let holds = Holds::of(&scene);
    holds.drop_held(&pair("dropped", 1)).await;
    let gate = Gate::before_inserts(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events: Vec<Event> = (0..60).map(|_| event("order.placed")).collect();
    let operation = |n: usize| if n == 30 { "dropped".to_owned() } else { format!("op-{}", n % 7) };
    gate.close().await;

    let calls = events.iter().enumerate().map(|(n, event)| {
        let (client, op) = (&scene.client, pair(&operation(n), 1));
        async move { try_stage(client, ticket, &op, std::slice::from_ref(event)).await }
    });
    let (mut answers, ()) = tokio::join!(futures::future::join_all(calls), async {
        gate.somebody_waits().await;
        gate.open().await;
    });

    assert_eq!(refusal(answers.remove(30)), (Code::FailedPrecondition, "HOLD_DROPPED".to_owned()));
    let staged: Vec<StagedEvent> = answers.into_iter().map(|answer| answer.unwrap().remove(0)).collect();
    assert!(staged.iter().all(|event| event.outcome() == Outcome::Staged));
    assert_eq!(reconcile(&scene.database, 59).await.unresolved, 59);
    let transactions: i64 =
        scene.database.one("SELECT count(DISTINCT xmin::text) FROM holdfast.event_outbox").await;
    assert!(transactions < 30, "{transactions} transactions for 59 requests");
    caller.commit().await;
    scene.client.confirm(ticket).await;
    for n in 0..7 {
        assert!(holds.release(&pair(&format!("op-{n}"), 1)).await.0 >= 8);
    }
    let mut sent = ids(&events);
    sent.remove(30);
    scene.consumer.wait_for_ids(&sent, LONG).await;
    scene.end(59).await;
}
