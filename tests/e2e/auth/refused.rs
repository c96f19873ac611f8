//! What a caller is told, and what only the operator learns.

use holdfast_proto::v1::{
    Event, GetEventRequest, ListServicesRequest, StageNowRequest,
    control_service_client::ControlServiceClient, outbox_service_client::OutboxServiceClient,
};
use holdfast_server::auth::{Algorithm, Order, PrivateKey, generate};
use holdfast_tests::{
    auth::{self, Bearer},
    client::{Client, channel, event},
    scene::{SERVICE, Scene},
};
use tonic::{Code, Request, Status};

use super::reason;

/// A look-up with this `authorization`, however odd.
async fn look(scene: &Scene, authorization: &[&str]) -> Status {
    let mut request = Request::new(GetEventRequest { service: SERVICE.to_owned(), id: event("").id });
    for value in authorization {
        request.metadata_mut().append("authorization", value.parse().unwrap());
    }
    OutboxServiceClient::new(channel(scene.server.address())).get_event(request).await.unwrap_err()
}

fn order<'a>(audience: &'a str, scope: &'a str) -> Order<'a> {
    Order { sub: "alice", audience, issuer: None, scope, ttl: std::time::Duration::from_secs(600) }
}

#[tokio::test]
async fn which_check_failed_is_in_the_metric_and_never_in_the_answer() {
    let scene = Scene::start().await;
    let good = auth::token("orders.read");
    let other = generate(Algorithm::EdDSA).unwrap();
    let foreign = PrivateKey::parse("foreign", other.private_pem.as_bytes()).unwrap();
    let bearer = |token: &str| format!("Bearer {token}");
    let cut = good.rsplit_once('.').unwrap().0;
    let cases = [
        ("missing", vec![]),
        ("scheme", vec!["Basic eDp5".to_owned()]),
        ("scheme", vec![bearer(&good), bearer(&good)]),
        ("size", vec![bearer(&"x".repeat(9_000))]),
        ("form", vec![bearer("abc")]),
        ("signature", vec![bearer(&format!("{cut}."))]),
        ("key", vec![bearer(&foreign.mint(&order("holdfast", "orders.read")).unwrap())]),
        ("audience", vec![bearer(&auth::private_key().mint(&order("others", "orders.read")).unwrap())]),
    ];
    let mut told = Vec::new();
    for (check, authorization) in cases {
        let label = format!("check=\"{check}\"");
        let before = scene.server.metric("holdfast_auth_refused_total", &label);
        let status = look(&scene, &authorization.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(status.code(), Code::Unauthenticated, "{check}: {status:?}");
        assert_eq!(reason(&status), ("UNAUTHENTICATED".into(), None), "{check}");
        told.push(status.message().to_owned());
        let after = scene.server.metric("holdfast_auth_refused_total", &label);
        assert!((after - before - 1.0).abs() < 0.5, "{check}: {before} to {after}");
        assert!(!scene.logs.with("a call without a valid token").is_empty(), "said at debug");
    }
    told.dedup();
    assert_eq!(told, ["a valid bearer token is required"]);
    assert_eq!(look(&scene, &[&bearer(&good)]).await.code(), Code::NotFound);
    assert!(scene.server.metric("holdfast_auth_accepted_total", "kid=\"eddsa-") >= 1.0);
    scene.end(0).await;
}

#[tokio::test]
async fn a_token_that_the_transport_does_not_carry_harms_nobody_else() {
    let scene = Scene::start().await;
    let channel = channel(scene.server.address());
    let mut neighbour =
        OutboxServiceClient::new(Bearer::new(&auth::token("orders.read")).over(channel.clone()));
    let look = || GetEventRequest { service: SERVICE.to_owned(), id: event("").id };
    let mut request = Request::new(look());
    request.metadata_mut().insert("authorization", format!("Bearer {}", "x".repeat(20_000)).parse().unwrap());

    let refused = OutboxServiceClient::new(channel).get_event(request).await.unwrap_err();

    assert_ne!(refused.code(), Code::Ok);
    assert_eq!(
        neighbour.get_event(look()).await.unwrap_err().code(),
        Code::NotFound,
        "on the same connection"
    );
    scene.end(0).await;
}

#[tokio::test]
async fn who_has_no_scope_learns_neither_whether_a_service_exists_nor_what_is_wrong_with_the_request() {
    let scene = Scene::start().await;
    let client =
        Client::with_token(scene.server.address(), SERVICE, &auth::token("billing.write billing.read"));
    for service in [SERVICE, "nobody"] {
        let missing = format!("{service}.write");
        for events in [vec![], vec![Event::default()], vec![event("order.placed")]] {
            let request = StageNowRequest { service: service.into(), events };
            let status = client.raw.clone().stage_now(request).await.unwrap_err();
            assert_eq!(reason(&status), ("SCOPE_MISSING".into(), Some(missing.clone())), "{status:?}");
        }
        let request = GetEventRequest { service: service.into(), id: "no id".into() };
        let status = client.raw.clone().get_event(request).await.unwrap_err();
        assert_eq!(reason(&status), ("SCOPE_MISSING".into(), Some(format!("{service}.read"))), "{status:?}");
    }
    // Nothing was written.
    scene.end(0).await;
}

#[tokio::test]
async fn services_are_listed_for_who_may_read_or_operate_them() {
    let scene = Scene::start().await;
    for (scope, seen) in [
        ("orders.read", 1),
        ("orders.admin", 1),
        ("holdfast.admin", 1),
        ("orders.write", 0),
        ("billing.read", 0),
        ("", 0),
    ] {
        let channel = Bearer::new(&auth::token(scope)).over(channel(scene.server.address()));
        let listed = ControlServiceClient::new(channel).list_services(ListServicesRequest {}).await.unwrap();
        assert_eq!(listed.into_inner().services.len(), seen, "{scope}");
    }
    scene.end(0).await;
}
