//! What an operator does about parked events: list, unpark, discard (design, section 4).

use std::time::Duration;

use holdfast_proto::v1::EventState;
use holdfast_server::{
    db::{self, Pool},
    metrics::Metrics,
    outbox::{
        drain,
        operator::{Answer, Refused, WhyNot},
        parked::{Desk, Filter, Parked},
    },
};
use holdfast_tests::{
    client::event,
    reconcile::reconcile,
    scene::{SERVICE, Scene, Stage},
    wait::LONG,
};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::{MISSED, Row, hold_drain_lock, put, row, row_is};

fn desk(stage: &Stage) -> Desk {
    let options = db::Options {
        url: stage.database.url(),
        max_connections: 2,
        acquire_timeout: Duration::from_secs(5),
        prepared_statements: true,
    };
    let metrics = Metrics::new(prometheus::Registry::new()).unwrap().service(SERVICE);
    Desk::new(
        Pool::new(&options).unwrap(),
        metrics,
        &drain::Options::new(SERVICE.to_owned(), "admin".to_owned()),
    )
}

/// A parked event of a key with evidence.
async fn park(stage: &Stage, event_type: &str, key: Option<&str>) -> String {
    let more = [
        ("parked_at", "now()"),
        ("parked_reason", "'crashed'"),
        ("admitted_at", "now()"),
        ("lone_claims", "7"),
        ("attempts", "3"),
    ];
    put(&stage.database, event_type, key, &more).await
}

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

fn skipped(answer: &Answer) -> Vec<(Uuid, WhyNot)> {
    answer.skipped.iter().map(|one| (one.id, one.why)).collect()
}

fn shown(events: &[Parked]) -> Vec<String> {
    events.iter().map(|event| event.id.to_string()).collect()
}

#[tokio::test]
async fn parked_events_are_listed_page_by_page_and_by_type_and_key() {
    let scene = Scene::start().await;
    let desk = desk(&scene);
    let mut all = Vec::new();
    for n in 0..5 {
        let kind = if n % 2 == 0 { "order.even" } else { "order.odd" };
        all.push(park(&scene, kind, Some(&format!("k-{n}"))).await);
    }
    let behind = put(&scene.database, "order.paid", Some("k-4"), &[]).await;
    row_is(&scene.database, &behind, "set aside", Row::set_aside).await;

    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = desk.list(&Filter::default(), after, 2).await.unwrap();
        assert!(page.events.len() <= 2);
        seen.extend(page.events);
        after = page.next;
        if after.is_none() {
            break;
        }
    }

    assert_eq!(shown(&seen), all);
    let last = seen.last().unwrap();
    assert_eq!((last.reason.as_str(), last.attempts, last.lone_claims, last.behind), ("crashed", 3, 7, 1));
    assert!(last.parked_at.is_some() && last.ordering_key.as_deref() == Some("k-4"));
    let odd = Filter { event_type: Some("order.odd".to_owned()), ..Filter::default() };
    assert_eq!(shown(&desk.list(&odd, None, 100).await.unwrap().events), [all[1].clone(), all[3].clone()]);
    let key = Filter { ordering_key: Some("k-2".to_owned()), ..Filter::default() };
    assert_eq!(shown(&desk.list(&key, None, 100).await.unwrap().events), [all[2].clone()]);
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn an_unparked_event_goes_out_before_those_behind_it_and_what_is_not_parked_is_left_alone() {
    let scene = Scene::start().await;
    let desk = desk(&scene);
    let parked = park(&scene, "order.placed", Some("k")).await;
    let behind = put(&scene.database, "order.paid", Some("k"), &[]).await;
    let sent = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&sent, EventState::Published).await;
    row_is(&scene.database, &behind, "set aside", Row::set_aside).await;
    let nobody = Uuid::now_v7();

    let answer = desk.unpark(&[id(&parked), id(&sent), nobody]).await.unwrap();

    assert_eq!(answer.acted, [id(&parked)]);
    assert_eq!(skipped(&answer), [(id(&sent), WhyNot::NotParked), (nobody, WhyNot::NotFound)]);
    scene.client.wait_for_state(&behind, EventState::Published).await;
    assert_eq!(scene.consumer.ids(), [sent, parked.clone(), behind]);
    let unparked = "SELECT concat_ws(' ', attempts, lone_claims, parked_at, parked_reason) FROM holdfast.event_outbox WHERE id = ";
    assert_eq!(scene.database.one::<String>(&format!("{unparked}'{parked}'")).await, "3 0");
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(3).await;
}

#[tokio::test]
async fn a_discarded_event_is_counted_and_those_behind_it_go_on() {
    let scene = Scene::start().await;
    let desk = desk(&scene);
    let parked = park(&scene, "order.placed", Some("k")).await;
    let behind = [
        put(&scene.database, "order.paid", Some("k"), &[]).await,
        put(&scene.database, "order.shipped", Some("k"), &[]).await,
    ];
    for follower in &behind {
        row_is(&scene.database, follower, "set aside", Row::set_aside).await;
    }

    let answer = desk.discard(&[id(&parked)]).await.unwrap();
    let again = desk.discard(&[id(&parked)]).await.unwrap();

    assert_eq!((answer.acted.len(), answer.skipped.len()), (1, 0));
    assert_eq!(skipped(&again), [(id(&parked), WhyNot::NotFound)]);
    scene.consumer.wait_for_ids(&behind, LONG).await;
    assert_eq!(scene.consumer.ids(), behind);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    let census = scene.end(3).await;
    assert_eq!((census.published, census.gone["discarded_by_admin"]), (2, 1));
}

#[tokio::test]
async fn a_row_that_somebody_else_has_locked_is_skipped_as_busy_and_a_busy_drain_refuses_all() {
    let scene = Scene::start().await;
    let desk = desk(&scene);
    let (free, locked) = (park(&scene, "order.placed", None).await, park(&scene, "order.placed", None).await);
    let mut stranger = scene.database.connect().await;
    stranger.execute("BEGIN").await.unwrap();
    sqlx::query("SELECT FROM holdfast.event_outbox WHERE id = $1 FOR UPDATE")
        .bind(id(&locked))
        .execute(&mut stranger)
        .await
        .unwrap();

    let holder = hold_drain_lock(&scene.database).await;
    let refused = desk.discard(&[id(&free)]).await;
    assert!(matches!(refused, Err(Refused::Busy)), "{refused:?}");
    assert!(!row(&scene.database, &free).await.published);
    holder.close().await.unwrap();

    let answer = desk.unpark(&[id(&free), id(&locked)]).await.unwrap();

    assert_eq!(answer.acted, [id(&free)]);
    assert_eq!(skipped(&answer), [(id(&locked), WhyNot::Busy)]);
    stranger.close().await.unwrap();
    scene.client.wait_for_state(&free, EventState::Published).await;
    assert_eq!(reconcile(&scene.database, 2).await.parked, 1);
    scene.end(2).await;
}
