//! Every verb is in the audit: done, refused and denied, with what was asked for and what came of it.

use holdfast_proto::v1::{
    AdminCall, AdminOutcome, DiscardEventsRequest, EventFilter, ListAdminAuditRequest, ListParkedRequest,
    ListPendingRequest, ListUnresolvedRequest, PauseDrainRequest, ResumeDrainRequest, RetryNowRequest,
    UnparkEventsRequest, control_service_client::ControlServiceClient,
};
use holdfast_tests::{
    auth::{self, Bearer},
    client::channel,
    operator::{Operator, of_type},
    scene::{SERVICE, Scene},
};
use serde_json::{Value, json};
use tonic::Code;

const VERBS: [&str; 8] = [
    "ListPending",
    "ListUnresolved",
    "ListParked",
    "UnparkEvents",
    "DiscardEvents",
    "RetryNow",
    "PauseDrain",
    "ResumeDrain",
];

/// Each verb once, as `token`'s; the codes of the answers.
async fn each(scene: &Scene, token: &str) -> Vec<Code> {
    let mut raw = Operator::with_token(scene.server.address(), token).raw;
    let service = || SERVICE.to_owned();
    let filter = || Some(of_type("order.none"));
    let code = |status: tonic::Status| status.code();
    let mut codes = Vec::new();
    let request = ListPendingRequest { service: service(), page_size: 7, ..Default::default() };
    codes.push(raw.list_pending(request).await.map_or_else(code, |_| Code::Ok));
    let request = ListUnresolvedRequest { service: service(), ..Default::default() };
    codes.push(raw.list_unresolved(request).await.map_or_else(code, |_| Code::Ok));
    let request = ListParkedRequest { service: service(), ..Default::default() };
    codes.push(raw.list_parked(request).await.map_or_else(code, |_| Code::Ok));
    let request = UnparkEventsRequest { service: service(), filter: filter(), ..Default::default() };
    codes.push(raw.unpark_events(request).await.map_or_else(code, |_| Code::Ok));
    let request = DiscardEventsRequest {
        service: service(),
        filter: filter(),
        reason: "nobody wants them".into(),
        ..Default::default()
    };
    codes.push(raw.discard_events(request).await.map_or_else(code, |_| Code::Ok));
    let request = RetryNowRequest { service: service(), filter: filter(), ..Default::default() };
    codes.push(raw.retry_now(request).await.map_or_else(code, |_| Code::Ok));
    let request = PauseDrainRequest { service: service(), reason: "a look".into() };
    codes.push(raw.pause_drain(request).await.map_or_else(code, |_| Code::Ok));
    let request = ResumeDrainRequest { service: service() };
    codes.push(raw.resume_drain(request).await.map_or_else(code, |_| Code::Ok));
    codes
}

async fn audit(scene: &Scene, sub: &str) -> Vec<AdminCall> {
    let token = auth::token_of("root", "holdfast.admin");
    let channel = Bearer::new(&token).over(channel(scene.server.address()));
    let request = ListAdminAuditRequest { sub: sub.to_owned(), ..Default::default() };
    let mut calls =
        ControlServiceClient::new(channel).list_admin_audit(request).await.unwrap().into_inner().calls;
    calls.reverse();
    calls
}

#[tokio::test]
async fn every_verb_is_written_down_whether_it_was_done_or_denied() {
    let scene = Scene::start().await;

    let done = each(&scene, &auth::token_of("olga", "orders.admin")).await;
    let denied =
        each(&scene, &auth::token_of("mallory", "orders.read orders.write billing.admin holdfast.admin"))
            .await;

    assert_eq!((done, denied), (vec![Code::Ok; 8], vec![Code::PermissionDenied; 8]));
    for (sub, outcome) in [("olga", AdminOutcome::Done), ("mallory", AdminOutcome::Denied)] {
        let calls = audit(&scene, sub).await;
        assert_eq!(calls.iter().map(|call| call.verb.as_str()).collect::<Vec<_>>(), VERBS);
        assert!(calls.iter().all(|call| call.outcome() == outcome && call.service == SERVICE), "{calls:?}");
    }
    let calls = audit(&scene, "olga").await;
    let json_of = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(json_of(&calls[0].arguments), json!({"page_size": 7}));
    assert_eq!(
        json_of(&calls[4].arguments),
        json!({"filter": {"event_type": "order.none"}, "reason": "nobody wants them"})
    );
    assert_eq!(json_of(&calls[4].counts), json!({"matched": 0, "acted": 0, "skipped": 0, "complete": true}));
    assert_eq!(json_of(&calls[6].arguments), json!({"reason": "a look"}));
    assert_eq!(json_of(&calls[7].counts), json!({"was_paused": true}));
    scene.end(0).await;
}

#[tokio::test]
async fn a_refused_call_is_written_down_with_its_reason() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);

    let status = operator.retry_all(EventFilter::default()).await.unwrap_err();

    assert_eq!(status.code(), Code::InvalidArgument);
    let calls = audit(&scene, "olga").await;
    assert_eq!((calls.len(), calls[0].outcome()), (1, AdminOutcome::Failed));
    assert_eq!(calls[0].why, "INVALID_REQUEST");
    scene.end(0).await;
}
