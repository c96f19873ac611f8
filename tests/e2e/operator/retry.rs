//! `RetryNow`: what waits for a time is due at once; what waits for something else is not touched, and told why.

use holdfast_proto::v1::{EventState, SkipWhy};
use holdfast_tests::{
    client::event,
    holds::{self, pair},
    operator::{Operator, all, of_type, skipped},
    scene::Scene,
    wait::{self, LONG},
};
use uuid::Uuid;

use super::{BACKING_OFF, PARKED, put_many};
use crate::drain::{MISSED, NOBODY, Row, bind, put, row, row_is, unbind};

#[tokio::test]
async fn a_row_that_backs_off_goes_at_once_before_those_behind_it_and_keeps_its_attempts_until_then() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let off = put(&scene.database, "order.off", Some("k"), &BACKING_OFF).await;
    let behind = put(&scene.database, "order.behind", Some("k"), &[]).await;
    row_is(&scene.database, &behind, "set aside", Row::set_aside).await;

    let done = operator.retry(&[&off, &behind]).await.unwrap();

    assert_eq!((done.matched, done.acted), (2, 1));
    assert_eq!(skipped(&done), [(behind.as_str(), SkipWhy::Behind)]);
    assert_eq!(done.skipped_events[0].behind, off);
    scene.client.wait_for_state(&behind, EventState::Published).await;
    assert_eq!(scene.consumer.ids(), [off.clone(), behind]);
    assert_eq!(row(&scene.database, &off).await.attempts, 3);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(2).await;
}

#[tokio::test]
async fn a_type_that_no_queue_took_is_tried_at_once_and_waits_again_while_none_does() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    unbind(&scene).await;
    put_many(&scene.database, NOBODY, 20, &[]).await;
    let waiting = "SELECT count(*) FROM holdfast.event_outbox WHERE unroutable AND claimed_at IS NULL AND next_attempt_at > now() + interval '1 day'";
    wait::until_equal("rows that wait for the probe", LONG, 19_i64, || scene.database.one(waiting)).await;
    let attempts = "SELECT min(attempts) FROM holdfast.event_outbox";

    let done = operator.retry_all(of_type(NOBODY)).await.unwrap();

    assert!(done.acted >= 19 && done.complete, "{done:?}");
    wait::until_equal("rows tried again", LONG, true, || async {
        scene.database.one::<i32>(attempts).await >= 2
    })
    .await;
    wait::until_equal("rows that wait for the probe", LONG, 19_i64, || scene.database.one(waiting)).await;
    bind(&scene, NOBODY).await;
    operator.retry_all(of_type(NOBODY)).await.unwrap();
    scene.consumer.wait_for(20, LONG).await;
    scene.end(20).await;
}

#[tokio::test]
async fn what_waits_for_anything_else_is_left_alone_and_says_for_what() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    let undecided = event("order.open");
    scene.client.stage(ticket, std::slice::from_ref(&undecided)).await;
    let held = event("order.held");
    holds::commit(&scene, &pair("op", 7), std::slice::from_ref(&held)).await;
    row_is(&scene.database, &held.id, "resolved", |row| row.resolved).await;
    let parked = put(&scene.database, "order.parked", None, &PARKED).await;
    let sent = scene.commit(&event("order.sent")).await;
    scene.client.wait_for_state(&sent, EventState::Published).await;
    let taken =
        put(&scene.database, "order.taken", None, &[("claimed_at", "now()"), ("claimed_by", "'somebody'")])
            .await;
    let nobody = Uuid::now_v7().to_string();

    let done = operator.retry(&[&undecided.id, &held.id, &parked, &sent, &taken, &nobody]).await.unwrap();

    assert_eq!((done.matched, done.acted, done.skipped), (5, 0, 6));
    let mut named = skipped(&done);
    named.sort_unstable();
    let mut expected = vec![
        (undecided.id.as_str(), SkipWhy::Unresolved),
        (held.id.as_str(), SkipWhy::Held),
        (parked.as_str(), SkipWhy::Parked),
        (sent.as_str(), SkipWhy::Published),
        (taken.as_str(), SkipWhy::InFlight),
        (nobody.as_str(), SkipWhy::NotFound),
    ];
    expected.sort_unstable();
    assert_eq!(named, expected);
    let done = operator.retry_all(all()).await.unwrap();
    assert_eq!((done.matched, done.complete), (0, true), "a filter comes to none of them");
    open.rollback().await;
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn six_thousand_rows_are_made_due_by_a_filter_and_a_second_call_finds_them_ready() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    scene.logs.wait_for("broker connected").await;
    // What has become due drains meanwhile; `retry_whole` comes again where a call found the drain busy for its second.
    scene.logs.expect("the drain of this service was busy for a second");
    put_many(&scene.database, "order.many", 6_000, &BACKING_OFF).await;

    let due = operator.retry_whole(all()).await;

    assert_eq!(due, 6_000);
    scene.consumer.wait_for(6_000, LONG).await;
    let ready = put(&scene.database, "order.ready", None, &[]).await;
    let again = operator.retry(&[&ready]).await.unwrap();
    assert_eq!(again.acted, 0);
    scene.end(6_001).await;
}
