//! Every call has a name: in its answer, in its error, in its log lines, and is counted by what it came to.

use holdfast_proto::v1::{GetEventRequest, StageNowRequest};
use holdfast_tests::{
    client::event,
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use tonic::{Code, Request, Status, metadata::MetadataMap};
use tonic_types::StatusExt as _;

fn id_of(metadata: &MetadataMap) -> String {
    metadata.get("x-request-id").unwrap().to_str().unwrap().to_owned()
}

fn id_in(status: &Status) -> String {
    status.get_details_error_info().unwrap().metadata["request_id"].clone()
}

fn stage_now(id: Option<&'static str>) -> Request<StageNowRequest> {
    let mut request =
        Request::new(StageNowRequest { service: SERVICE.to_owned(), events: vec![event("order.placed")] });
    if let Some(id) = id {
        request.metadata_mut().insert("x-request-id", id.parse().unwrap());
    }
    request
}

fn missing_event() -> GetEventRequest {
    GetEventRequest { service: SERVICE.to_owned(), id: event("").id }
}

#[tokio::test]
async fn a_sane_id_of_the_callers_is_taken_over_and_any_other_replaced() {
    let scene = Scene::start().await;
    let mut client = scene.client.raw.clone();

    let answer = client.stage_now(stage_now(Some("order-form/4711"))).await.unwrap();
    assert_eq!(id_of(answer.metadata()), "order-form/4711");
    let answer = client.stage_now(stage_now(Some("quo\"te or two words"))).await.unwrap();
    let replaced = id_of(answer.metadata());
    let answer = client.stage_now(stage_now(None)).await.unwrap();
    let made = id_of(answer.metadata());

    for id in [&replaced, &made] {
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
    }
    assert_ne!(replaced, made);
    scene.end(3).await;
}

#[tokio::test]
async fn an_error_bears_the_id_of_its_call_beside_its_reason() {
    let scene = Scene::start().await;
    let mut request = Request::new(missing_event());
    request.metadata_mut().insert("x-request-id", "call-1".parse().unwrap());

    let status = scene.client.raw.clone().get_event(request).await.unwrap_err();

    assert_eq!((status.code(), id_in(&status).as_str()), (Code::NotFound, "call-1"));
    assert_eq!(id_of(status.metadata()), "call-1");
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.metadata["service"].as_str()), ("EVENT_NOT_FOUND", SERVICE));
    // A violation keeps its fields, and what the codec refuses gets an id all the same.
    let bad = scene.client.raw.clone().stage_now(StageNowRequest::default()).await.unwrap_err();
    assert!(!bad.get_details_bad_request().unwrap().field_violations.is_empty(), "{bad}");
    assert_eq!(id_in(&bad), id_of(bad.metadata()));
    let mut large = event("order.placed");
    large.data = Some(holdfast_proto::v1::event::Data::Json(format!("\"{}\"", "x".repeat(17 << 20))));
    let large = scene.client.try_stage_now(&[large]).await.unwrap_err();
    assert_eq!((large.code(), id_in(&large)), (Code::ResourceExhausted, id_of(large.metadata())));
    scene.end(0).await;
}

#[tokio::test]
async fn calls_are_counted_by_method_and_code_and_timed() {
    let scene = Scene::start().await;
    scene.client.raw.clone().stage_now(stage_now(None)).await.unwrap();
    for _ in 0..2 {
        scene.client.raw.clone().get_event(missing_event()).await.unwrap_err();
    }

    let is = |name: &'static str, labels: &'static str, wanted: f64| {
        let scene = &scene;
        wait::until_equal(labels, LONG, wanted, move || async move { scene.server.metric(name, labels) })
    };
    // A call is over when its last byte was taken, which its caller may see first.
    is("holdfast_grpc_calls_total", "code=\"OK\",method=\"holdfast.v1.OutboxService/StageNow\"", 1.0).await;
    is("holdfast_grpc_calls_total", "code=\"NOT_FOUND\",method=\"holdfast.v1.OutboxService/GetEvent\"", 2.0)
        .await;
    is("holdfast_grpc_call_duration_seconds_count", "method=\"holdfast.v1.OutboxService/GetEvent\"", 2.0)
        .await;
    is("holdfast_grpc_calls_in_flight", "method=\"holdfast.v1.OutboxService/GetEvent\"", 0.0).await;
    scene.end(1).await;
}

#[tokio::test]
async fn json_log_lines_bear_the_id_of_the_call_and_of_the_event() {
    let stage = Scene::builder().stage().await;
    let server = holdfast_tests::server::ServerProcess::start_logging(
        &stage.config,
        "warn,holdfast_server=debug,lapin=off",
    )
    .await;
    let client = holdfast_tests::client::Client::new(server.address(), SERVICE);
    let mut request = stage_now(Some("call-77"));
    let id = request.get_ref().events[0].id.clone();
    request.get_mut().service = SERVICE.to_owned();

    client.raw.clone().stage_now(request).await.unwrap();
    stage.consumer.wait_for_ids(&[&id], LONG).await;

    let has = |message: &'static str, parts: [String; 2]| {
        let server = &server;
        wait::until(message, LONG, move || {
            let lines = server.lines();
            let found = lines
                .iter()
                .any(|line| line.contains(message) && parts.iter().all(|part| line.contains(part)));
            async move { if found { Ok(()) } else { Err(lines) } }
        })
    };
    has("staging", ["\"request.id\":\"call-77\"".to_owned(), id.clone()]).await;
    has("call ended", ["\"request.id\":\"call-77\"".to_owned(), "\"rpc.code\":\"OK\"".to_owned()]).await;
    has("left the wire", [format!("\"event.id\":\"{id}\""), "\"service.name\":\"orders\"".to_owned()]).await;
    let mut server = server;
    server.sigterm();
    assert!(server.exit_status(LONG).await.success());
    stage.logs.check();
}
