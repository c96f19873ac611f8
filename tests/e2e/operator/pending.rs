//! `ListPending`: each row that is not out, with its one reason, at the cost of a page.

use holdfast_proto::v1::{ListPendingRequest, PendingFilter, PendingWhy};
use holdfast_tests::{
    client::{event, keyed},
    holds::{self, pair},
    operator::Operator,
    scene::{SERVICE, Scene},
};

use super::{BACKING_OFF, PARKED, put_many};
use crate::drain::{Row, expect_broker_trouble, hold_drain_lock, put, row_is};

fn waiting_for(why: PendingWhy) -> PendingFilter {
    PendingFilter { why: why.into(), ..PendingFilter::default() }
}

#[tokio::test]
async fn every_row_that_is_not_out_says_why() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    let undecided = event("order.open");
    scene.client.stage(ticket, std::slice::from_ref(&undecided)).await;
    let held = event("order.held");
    holds::commit(&scene, &pair("op", 7), std::slice::from_ref(&held)).await;
    row_is(&scene.database, &held.id, "resolved", |row| row.resolved).await;
    let database = &scene.database;
    let parked = put(database, "order.parked", Some("p"), &PARKED).await;
    let off = put(database, "order.off", Some("b"), &BACKING_OFF).await;
    let infinity = ("next_attempt_at", "'infinity'");
    let nobody =
        put(database, "order.nobody", None, &[("admitted_at", "now()"), infinity, ("unroutable", "true")])
            .await;
    let behind = scene.commit(&keyed("order.behind", "b")).await;
    row_is(database, &behind, "set aside", Row::set_aside).await;
    // Nothing is claimed meanwhile.
    let holder = hold_drain_lock(database).await;
    let alone = put(
        database,
        "order.alone",
        None,
        &[("admitted_at", "now()"), ("next_attempt_at", "now()"), ("lone_claims", "2")],
    )
    .await;
    let claimed =
        put(database, "order.taken", Some("t"), &[("claimed_at", "now()"), ("claimed_by", "'somebody'")])
            .await;
    let ready = put(database, "order.ready", None, &[]).await;
    let met_later = put(database, "order.later", Some("t"), &[]).await;

    let seen = operator.pending(PendingFilter::default(), 3).await;

    let whys: Vec<_> = seen.iter().map(|one| (one.id.as_str(), one.why())).collect();
    assert_eq!(
        whys,
        [
            (undecided.id.as_str(), PendingWhy::Unresolved),
            (held.id.as_str(), PendingWhy::Held),
            (parked.as_str(), PendingWhy::Parked),
            (off.as_str(), PendingWhy::BackingOff),
            (nobody.as_str(), PendingWhy::Unroutable),
            (behind.as_str(), PendingWhy::Behind),
            (alone.as_str(), PendingWhy::Alone),
            (claimed.as_str(), PendingWhy::InFlight),
            (ready.as_str(), PendingWhy::Ready),
            (met_later.as_str(), PendingWhy::Behind),
        ]
    );
    assert_eq!((seen[0].ticket, seen[1].ticket), (ticket, 0));
    assert_eq!(seen[1].hold, Some(pair("op", 7)));
    assert!(seen[2].parked_at.is_some() && seen[2].parked_reason == "crashed");
    assert_eq!((seen[3].attempts, seen[3].last_error.as_str()), (3, "nacked"));
    assert!(seen[3].next_attempt_at.is_some() && seen[4].next_attempt_at.is_none());
    assert_eq!((seen[5].behind.as_str(), seen[9].behind.as_str()), (off.as_str(), claimed.as_str()));
    assert!(seen[6].alone && !seen[8].alone);
    assert_eq!((seen[7].claimed_by.as_str(), seen[7].claimed_at.is_some()), ("somebody", true));
    assert_eq!(seen[9].ordering_key.as_deref(), Some("t"));
    let only = operator.pending(waiting_for(PendingWhy::Behind), 0).await;
    assert_eq!(only.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [&*behind, &*met_later]);
    let typed = PendingFilter { event_type: "order.ready".into(), ..PendingFilter::default() };
    assert_eq!(operator.pending(typed, 0).await.len(), 1);
    let key = PendingFilter { ordering_key: Some("b".into()), ..PendingFilter::default() };
    assert_eq!(operator.pending(key, 0).await.len(), 2);
    drop(holder);
    open.rollback().await;
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn six_thousand_rows_are_listed_once_each_and_a_filter_that_matches_the_last_one_finds_it() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    scene.broker_proxy().away().await;
    let operator = Operator::of(&scene);
    put_many(&scene.database, "order.many", 6_000, &BACKING_OFF).await;
    let last = put(&scene.database, "order.last", None, &BACKING_OFF).await;

    let all = operator.pending(PendingFilter::default(), 500).await;

    assert_eq!(all.len(), 6_001);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(all.iter().all(|one| one.why() == PendingWhy::BackingOff));
    // The first page looks at 5,000 rows, none of which it is: no silent end.
    let filter = PendingFilter { event_type: "order.last".into(), ..PendingFilter::default() };
    let request = ListPendingRequest {
        service: SERVICE.to_owned(),
        filter: Some(filter.clone()),
        ..ListPendingRequest::default()
    };
    let first = operator.raw.clone().list_pending(request).await.unwrap().into_inner();
    assert!(first.events.is_empty() && !first.next_page_token.is_empty());
    let found = operator.pending(filter, 0).await;
    assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [last]);
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_page_of_long_texts_stays_below_what_a_client_takes() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let long = [
        ("admitted_at", "now()"),
        ("next_attempt_at", "now() + interval '1 hour'"),
        ("last_error", "repeat('\u{1f600}', 5000)"),
        ("parked_reason", "repeat('\u{1f600}', 5000)"),
        ("parked_at", "now()"),
    ];
    put_many(&scene.database, "order.long", 500, &long).await;

    let all = operator.pending(PendingFilter::default(), 500).await;

    assert_eq!(all.len(), 500, "in more pages than one");
    assert!(all.iter().all(|one| one.last_error.chars().count() == 1_024));
    scene.end_as_it_is().await;
}
