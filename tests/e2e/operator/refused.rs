//! What the operator's verbs refuse, by field and with a reason; and that a busy drain is waited for, and then told.

use std::time::{Duration, Instant};

use holdfast_proto::v1::{
    DiscardEventsRequest, EventFilter, ListPendingRequest, ListUnresolvedRequest, PauseDrainRequest,
    PendingFilter, RetryNowRequest, UnparkEventsRequest,
};
use holdfast_tests::{
    auth,
    chaos::Proxy,
    operator::{Operator, all},
    scene::{SERVICE, Scene},
};
use sqlx::Connection as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{BACKING_OFF, PARKED};
use crate::drain::{expect_database_trouble, hold_drain_lock, put, row};

fn fields(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let request = status.get_details_bad_request().unwrap();
    request.field_violations.into_iter().map(|one| one.field).collect()
}

fn reason(status: &Status) -> (Code, String, String) {
    let info = status.get_details_error_info().unwrap();
    (status.code(), info.reason, info.metadata["applied"].clone())
}

#[tokio::test]
async fn all_that_is_wrong_with_a_request_is_told_at_once() {
    let scene = Scene::start().await;
    let mut raw = Operator::of(&scene).raw;
    let service = || SERVICE.to_owned();
    let long = EventFilter { event_type: "x".repeat(256), ordering_key: Some("a\0".into()), all: true };

    let status = raw
        .list_pending(ListPendingRequest {
            service: "Not A Name".into(),
            filter: Some(PendingFilter { event_type: "a\0".into(), ordering_key: None, why: 77 }),
            page_size: 501,
            page_token: "seven".into(),
        })
        .await
        .unwrap_err();
    assert_eq!(fields(&status), ["page_size", "page_token", "filter.event_type", "filter.why", "service"]);
    let status = raw
        .list_unresolved(ListUnresolvedRequest { service: service(), page_size: -1, page_token: "x".into() })
        .await
        .unwrap_err();
    assert_eq!(fields(&status), ["page_size", "page_token"]);
    let status = raw
        .unpark_events(UnparkEventsRequest { service: service(), ..Default::default() })
        .await
        .unwrap_err();
    assert_eq!(fields(&status), ["ids"]);
    let status = raw
        .retry_now(RetryNowRequest {
            service: service(),
            filter: Some(EventFilter::default()),
            continue_token: "x".into(),
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!(fields(&status), ["continue_token", "filter"]);
    let status = raw
        .discard_events(DiscardEventsRequest { service: service(), filter: Some(long), ..Default::default() })
        .await
        .unwrap_err();
    assert_eq!(fields(&status), ["filter.event_type", "filter.ordering_key", "filter.all", "reason"]);
    for bad in ["", "two\nlines", &"x".repeat(1_025)] {
        let request = PauseDrainRequest { service: service(), reason: bad.to_owned() };
        assert_eq!(fields(&raw.pause_drain(request).await.unwrap_err()), ["reason"]);
    }
    let request = PauseDrainRequest { service: "holdfast".into(), reason: String::new() };
    let status = raw.pause_drain(request).await.unwrap_err();
    assert_eq!(reason(&status).1, "RESERVED_SERVICE");
    scene.end(0).await;
}

#[tokio::test]
async fn an_unknown_service_is_told_only_to_whom_it_would_belong() {
    let scene = Scene::start().await;
    let request = || PauseDrainRequest { service: "nobody".into(), reason: "x".into() };

    let known = Operator::with_token(scene.server.address(), &auth::token("nobody.admin"));
    let status = known.raw.clone().pause_drain(request()).await.unwrap_err();
    assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_SERVICE".into(), "no".into()));
    let status = Operator::of(&scene).raw.clone().pause_drain(request()).await.unwrap_err();
    assert_eq!(reason(&status), (Code::PermissionDenied, "SCOPE_MISSING".into(), "no".into()));
    scene.end(0).await;
}

#[tokio::test]
async fn while_the_drain_is_busy_each_verb_waits_for_a_second_and_then_says_so_and_did_nothing() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let parked = put(&scene.database, "order.parked", None, &PARKED).await;
    let off = put(&scene.database, "order.off", None, &BACKING_OFF).await;
    let holder = hold_drain_lock(&scene.database).await;

    let begun = Instant::now();
    let refused = [
        operator.unpark(&[&parked]).await.unwrap_err(),
        operator.unpark_all(all(), "").await.unwrap_err(),
        operator.discard_all(all(), "gone").await.unwrap_err(),
        operator.retry(&[&off]).await.unwrap_err(),
        operator.pause("a look").await.unwrap_err(),
    ];

    assert!(begun.elapsed() < Duration::from_secs(15), "bounded: {:?}", begun.elapsed());
    for status in refused {
        assert_eq!(reason(&status), (Code::Aborted, "DRAIN_BUSY".into(), "no".into()));
        assert!(status.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()));
    }
    for id in [&parked, &off] {
        assert!(!row(&scene.database, id).await.published);
    }
    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM holdfast.drain_pause").await, 0);
    // To end a pause needs no lock, and neither does looking.
    assert_eq!(operator.resume().await.unwrap(), None);
    assert_eq!(operator.pending(PendingFilter::default(), 0).await.len(), 2);
    holder.close().await.unwrap();
    assert_eq!(operator.unpark(&[&parked]).await.unwrap().acted, 1);
    assert_eq!(operator.retry(&[&off]).await.unwrap().acted, 1);
    scene.end(2).await;
}

#[tokio::test]
async fn without_its_database_a_verb_is_unavailable_and_without_the_audit_it_is_not_done() {
    let mut stage = Scene::builder().with_database_proxy().stage().await;
    let control = Proxy::before(stage.control.server().port).await;
    stage.config.text("control", "database_url", &stage.control.url_through(control.port()));
    let scene = stage.start().await;
    scene.logs.wait_for("broker connected").await;
    expect_database_trouble(&scene);
    scene.logs.expect("service.name=holdfast-control");
    scene.logs.expect("could not be written into the audit");
    let operator = Operator::of(&scene);
    operator.pause("warm").await.unwrap();
    operator.resume().await.unwrap();

    scene.database_proxy().away().await;
    let status = operator.pause("the database is away").await.unwrap_err();
    assert_eq!((reason(&status).0, reason(&status).1), (Code::Unavailable, "DATABASE_UNAVAILABLE".into()));
    scene.database_proxy().pass().await;
    control.away().await;
    let status = operator.pause("the audit is away").await.unwrap_err();
    assert_eq!(reason(&status), (Code::Unavailable, "AUDIT_UNAVAILABLE".into(), "no".into()));

    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM holdfast.drain_pause").await, 0);
    control.pass().await;
    scene.end_as_it_is().await;
}
