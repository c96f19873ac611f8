//! `ListAdminAudit`, the first of the admin's calls: itself in the audit, allowed or denied.

use holdfast_proto::v1::{
    AdminCall, AdminOutcome, ListAdminAuditRequest, ListAdminAuditResponse,
    control_service_client::ControlServiceClient,
};
use holdfast_tests::{
    auth::{self, Bearer},
    chaos::Proxy,
    client::{channel, event},
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use prost_types::Timestamp;
use serde_json::{Value, json};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::reason;

async fn list_as(
    scene: &Scene,
    token: &str,
    request: impl tonic::IntoRequest<ListAdminAuditRequest>,
) -> Result<ListAdminAuditResponse, Status> {
    let channel = Bearer::new(token).over(channel(scene.server.address()));
    Ok(ControlServiceClient::new(channel).list_admin_audit(request).await?.into_inner())
}

fn about(service: &str) -> ListAdminAuditRequest {
    ListAdminAuditRequest { service: service.to_owned(), ..ListAdminAuditRequest::default() }
}

fn of(calls: &[AdminCall], sub: &str) -> Vec<AdminOutcome> {
    calls.iter().filter(|call| call.sub == sub).map(AdminCall::outcome).collect()
}

#[tokio::test]
async fn every_call_is_in_the_audit_the_denied_ones_with_what_they_lacked() {
    let scene = Scene::start().await;
    let fleet = auth::token_of("root", "holdfast.admin");
    let denied = auth::token_of("mallory", "orders.read orders.write billing.admin");
    let own = auth::token_of("olga", "orders.admin");

    for (request, scope) in [(about(SERVICE), "orders.admin"), (about(""), "holdfast.admin")] {
        let status = list_as(&scene, &denied, request).await.unwrap_err();
        assert_eq!(reason(&status), ("SCOPE_MISSING".into(), Some(scope.into())));
    }
    let mut named = Request::new(ListAdminAuditRequest { page_size: 7, ..about(SERVICE) });
    named.metadata_mut().insert("x-request-id", "night-shift-1".parse().unwrap());
    let seen = list_as(&scene, &own, named).await.unwrap().calls;
    assert!(seen.iter().all(|call| call.service == SERVICE), "{seen:?}");
    let all = list_as(&scene, &fleet, about("")).await.unwrap().calls;

    assert_eq!(of(&all, "mallory"), [AdminOutcome::Denied; 2]);
    assert_eq!(
        all.iter().filter(|call| call.sub == "mallory").map(|call| call.why.as_str()).collect::<Vec<_>>(),
        ["holdfast.admin", "orders.admin"]
    );
    // The call that lists is under way while it lists.
    assert_eq!(of(&all, "root"), [AdminOutcome::Unknown]);
    let olga = all.iter().find(|call| call.sub == "olga").unwrap();
    assert_eq!((olga.outcome(), olga.verb.as_str()), (AdminOutcome::Done, "ListAdminAudit"));
    assert_eq!((olga.request_id.as_str(), olga.service.as_str()), ("night-shift-1", SERVICE));
    assert_eq!(serde_json::from_str::<Value>(&olga.arguments).unwrap(), json!({"page_size": 7}));
    assert_eq!(serde_json::from_str::<Value>(&olga.counts).unwrap(), json!({"calls": seen.len()}));
    assert!(olga.ended_at.is_some() && olga.at.is_some());
    for (outcome, calls) in [("denied", 2.0), ("done", 2.0)] {
        let counted = scene.server.metric("holdfast_admin_calls_total", &format!("outcome=\"{outcome}\""));
        assert!((counted - calls).abs() < 0.5, "{outcome}: {counted}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn pages_are_walked_by_their_tokens_and_what_cannot_be_is_refused_by_field() {
    let scene = Scene::start().await;
    let token = auth::token_of("root", "holdfast.admin");
    for _ in 0..5 {
        list_as(&scene, &token, about("")).await.unwrap();
    }
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAdminAuditRequest { page_size: 2, page_token, to: None, ..about("") };
        let page = list_as(&scene, &token, request).await.unwrap();
        ids.extend(page.calls.iter().map(|call| call.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    // Five, and the first page's own call; those of later pages are newer than the first page.
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");

    let at = |seconds: i64, nanos: i32| Some(Timestamp { seconds, nanos });
    let status = list_as(
        &scene,
        &token,
        ListAdminAuditRequest {
            service: "Not A Name".into(),
            sub: "x".repeat(256),
            verb: "a\0b".into(),
            from: at(i64::MAX, 0),
            to: at(0, -1),
            page_size: 501,
            page_token: "seven".into(),
        },
    )
    .await
    .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let fields: Vec<_> =
        status.get_details_bad_request().unwrap().field_violations.into_iter().map(|one| one.field).collect();
    assert_eq!(fields, ["service", "sub", "verb", "from", "to", "page_size", "page_token"]);
    let backwards = ListAdminAuditRequest { from: at(7, 0), to: at(7, 0), ..about("") };
    assert_eq!(list_as(&scene, &token, backwards).await.unwrap_err().code(), Code::InvalidArgument);
    scene.end(0).await;
}

#[tokio::test]
async fn without_the_control_database_admins_are_refused_and_staging_goes_on() {
    let mut stage = Scene::builder().stage().await;
    let proxy = Proxy::before(stage.control.server().port).await;
    stage.config.text("control", "database_url", &stage.control.url_through(proxy.port()));
    let scene = stage.start().await;
    scene.logs.wait_for("broker connected").await;
    let token = auth::token_of("root", "holdfast.admin");
    list_as(&scene, &token, about("")).await.unwrap();
    scene.logs.expect("service.name=holdfast-control");
    scene.logs.expect("could not be written into the audit");

    proxy.away().await;

    let status = list_as(&scene, &token, about("")).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).0.as_str()), (Code::Unavailable, "AUDIT_UNAVAILABLE"));
    let denied = list_as(&scene, &auth::token(""), about("")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "denied stays denied");
    scene.commit(&event("order.placed")).await;
    proxy.pass().await;
    wait::until("the audit to be there again", LONG, || list_as(&scene, &token, about(""))).await;
    scene.end(1).await;
}
