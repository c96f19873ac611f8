//! `ListParked`, `UnparkEvents`, `DiscardEvents`: by ids and by filter, in slices, with every skip told.

use holdfast_proto::v1::{DiscardEventsRequest, EventState, ListParkedRequest, SkipWhy, SkippedCount};
use holdfast_tests::{
    operator::{Operator, all, of_type, skipped},
    scene::{SERVICE, Scene},
    wait::LONG,
};
use sqlx::{Connection as _, Executor as _};
use tonic::Code;
use uuid::Uuid;

use super::{PARKED, put_many};
use crate::drain::{MISSED, Row, put, row_is};

#[tokio::test]
async fn parked_events_are_listed_page_by_page_with_their_evidence() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    put_many(&scene.database, "order.many", 5, &PARKED).await;
    let last = put(&scene.database, "order.last", Some("k"), &PARKED).await;
    let behind = put(&scene.database, "order.paid", Some("k"), &[]).await;
    row_is(&scene.database, &behind, "set aside", Row::set_aside).await;
    let list = async |event_type: &str, page_token: &str| {
        let filter = Some(of_type(event_type));
        let page_token = page_token.to_owned();
        let request = ListParkedRequest { service: SERVICE.to_owned(), filter, page_size: 4, page_token };
        operator.raw.clone().list_parked(request).await.unwrap().into_inner()
    };

    let first = list("", "").await;
    let second = list("", &first.next_page_token).await;

    assert_eq!((first.events.len(), second.events.len()), (4, 2));
    assert!(second.next_page_token.is_empty());
    let shown = &second.events[1];
    assert_eq!((shown.id.as_str(), shown.reason.as_str(), shown.behind), (last.as_str(), "crashed", 1));
    assert!(shown.parked_at.is_some() && shown.ordering_key.as_deref() == Some("k"));
    assert_eq!(list("order.last", "").await.events.len(), 1);
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn three_thousand_parked_rows_are_unparked_by_their_type_and_no_other_is() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    put_many(&scene.database, "order.many", 3_000, &PARKED).await;
    let other = put(&scene.database, "order.other", None, &PARKED).await;

    let (mut acted, mut from) = (0, String::new());
    loop {
        let done = match operator.unpark_all(of_type("order.many"), &from).await {
            Ok(done) => done,
            Err(status) => {
                assert_eq!(
                    status.code(),
                    Code::Aborted,
                    "the drain is busy with what was unparked: {status:?}"
                );
                continue;
            }
        };
        assert_eq!((done.matched, done.skipped), (done.acted, 0));
        assert_eq!(done.complete, done.continue_token.is_empty());
        acted += done.acted;
        from = done.continue_token;
        if done.complete {
            break;
        }
    }

    assert_eq!(acted, 3_000);
    scene.consumer.wait_for(3_000, LONG).await;
    row_is(&scene.database, &other, "parked", |row| !row.published && row.generation == 0).await;
    let done = operator.discard_all(all(), "the test is over").await.unwrap();
    assert_eq!((done.acted, done.complete), (1, true));
    let census = scene.end(3_001).await;
    assert_eq!((census.published, census.gone["discarded_by_admin"]), (3_000, 1));
}

#[tokio::test]
async fn what_is_left_alone_is_named_with_its_reason_and_followers_of_the_discarded_go_on() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let parked = put(&scene.database, "order.placed", Some("k"), &PARKED).await;
    let behind = put(&scene.database, "order.paid", Some("k"), &[]).await;
    let locked = put(&scene.database, "order.locked", None, &PARKED).await;
    row_is(&scene.database, &behind, "set aside", Row::set_aside).await;
    let mut stranger = scene.database.connect().await;
    stranger.execute("BEGIN").await.unwrap();
    stranger
        .execute("SELECT FROM holdfast.event_outbox WHERE event_type = 'order.locked' FOR UPDATE")
        .await
        .unwrap();
    let nobody = Uuid::now_v7().to_string();
    let request = DiscardEventsRequest {
        service: SERVICE.to_owned(),
        ids: [&parked, &behind, &locked, &nobody, &parked].map(ToOwned::to_owned).into(),
        reason: "its consumer is gone".to_owned(),
        ..DiscardEventsRequest::default()
    };

    let answer = operator.raw.clone().discard_events(request).await.unwrap().into_inner();

    let done = answer.events.unwrap();
    assert_eq!((done.matched, done.acted, done.skipped, done.complete), (3, 1, 3, true));
    assert!(!done.skipped_events_truncated && done.continue_token.is_empty());
    let mut named = skipped(&done);
    named.sort_unstable();
    let mut expected = vec![
        (behind.as_str(), SkipWhy::NotParked),
        (locked.as_str(), SkipWhy::Busy),
        (nobody.as_str(), SkipWhy::NotFound),
    ];
    expected.sort_unstable();
    assert_eq!(named, expected);
    let counts = |why: SkipWhy| SkippedCount { why: why.into(), events: 1 };
    assert_eq!(done.skipped_counts, [SkipWhy::NotFound, SkipWhy::Busy, SkipWhy::NotParked].map(counts));
    scene.client.wait_for_state(&behind, EventState::Published).await;
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    let tally = scene.server.metric("holdfast_discarded_total", "discarded_by_admin");
    assert!((tally - 1.0).abs() < 0.1, "{tally}");
    stranger.close().await.unwrap();
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn of_more_skipped_rows_than_an_answer_names_all_are_counted() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    put_many(&scene.database, "order.many", 1_500, &PARKED).await;
    let mut stranger = scene.database.connect().await;
    stranger.execute("BEGIN").await.unwrap();
    stranger.execute("SELECT FROM holdfast.event_outbox FOR UPDATE").await.unwrap();

    let done = operator.unpark_all(all(), "").await.unwrap();

    assert_eq!((done.matched, done.acted, done.skipped), (1_500, 0, 1_500));
    assert_eq!((done.skipped_events.len(), done.skipped_events_truncated), (1_000, true));
    assert!(done.complete, "it does not turn in circles around them");
    stranger.close().await.unwrap();
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_slice_that_fails_does_not_hide_what_the_ones_before_it_did() {
    let stage = Scene::builder().set("drain", "schema_check", "\"0s\"").stage().await;
    put_many(&stage.database, "order.many", 1_500, &PARKED).await;
    let guarded = put(&stage.database, "order.many", None, &PARKED).await;
    stage
        .database
        .run(&format!(
            "CREATE FUNCTION public.guard() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN IF OLD.id = '{guarded}' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
             CREATE TRIGGER guard BEFORE DELETE ON holdfast.event_outbox FOR EACH ROW EXECUTE FUNCTION public.guard()"
        ))
        .await;
    let scene = stage.start().await;
    let operator = Operator::of(&scene);
    scene.logs.expect("an admin's verb stopped before its end");
    scene.logs.expect("a call failed through a fault of the server");

    let done = operator.discard_all(of_type("order.many"), "the test wants it").await.unwrap();

    assert_eq!((done.matched, done.acted, done.skipped, done.complete), (1_000, 1_000, 0, false));
    assert!(!done.continue_token.is_empty());
    let counts: String = scene
        .control
        .one("SELECT counts::text FROM holdfast.admin_audit_outcome ORDER BY call DESC LIMIT 1")
        .await;
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    assert_eq!(counts["acted"], 1_000);
    assert!(counts["stopped"].is_string(), "{counts}");
    let again = operator.discard_all(of_type("order.many"), "the test wants it").await.unwrap_err();
    assert_eq!(again.code(), Code::Internal, "nothing before it was done: {again:?}");
    scene.database.run("DROP FUNCTION public.guard() CASCADE").await;
    assert_eq!(operator.discard_all(of_type("order.many"), "the test wants it").await.unwrap().acted, 501);
    assert_eq!(scene.end(1_501).await.gone["discarded_by_admin"], 1_501);
}
