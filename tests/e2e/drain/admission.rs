//! Rows that no server wrote: every insert is admitted, whoever made it (design, section 4, "Admission").

use holdfast_client::outbox::publish_in_tx;
use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, keyed},
    scene::{SERVICE, Scene},
    wait::LONG,
};
use sqlx::Connection as _;
use uuid::Uuid;

use super::put;

#[tokio::test]
async fn a_row_put_in_by_plain_sql_is_delivered() {
    let scene = Scene::start().await;
    let id = put(&scene.database, "order.placed", None, &[]).await;

    let seen = scene.consumer.wait_for_ids(&[&id], LONG).await;

    assert_eq!(seen[0].json["id"], id.as_str());
    scene.end(1).await;
}

#[tokio::test]
async fn a_row_put_in_by_plain_sql_is_ordered_by_its_aggregate_unless_it_says_otherwise() {
    let scene = Scene::start().await;
    let aggregate = Uuid::now_v7();
    let aggregate_sql = format!("'{aggregate}'");
    let by_aggregate = put(&scene.database, "order.placed", None, &[("aggregate_id", &aggregate_sql)]).await;
    let by_key = put(&scene.database, "order.placed", Some("k"), &[("aggregate_id", &aggregate_sql)]).await;
    let by_nothing =
        put(&scene.database, "order.placed", Some(""), &[("aggregate_id", &aggregate_sql)]).await;

    for (id, key) in
        [(&by_aggregate, aggregate.to_string()), (&by_key, "k".to_owned()), (&by_nothing, String::new())]
    {
        let delivered = scene.client.wait_for_state(id, EventState::Published).await;
        assert_eq!(delivered.ordering_key, Some(key));
    }

    scene.end(3).await;
}

#[tokio::test]
async fn a_row_that_sql_committed_first_goes_before_one_of_its_key_that_was_staged_later() {
    // The floor is far away: it is the staged one's hint that finds both.
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").start().await;
    let mut pairs = Vec::new();
    for n in 0..10 {
        let key = format!("k-{n}");
        let by_sql = put(&scene.database, "order.placed", Some(&key), &[]).await;
        let staged = scene.commit(&keyed("order.paid", &key)).await;
        pairs.push([by_sql, staged]);
    }

    scene.consumer.wait_for_ids(&pairs.concat(), LONG).await;

    for pair in &pairs {
        assert_eq!(super::only(scene.consumer.ids(), pair), pair);
    }
    scene.end(20).await;
}

#[tokio::test]
async fn an_event_published_in_the_callers_own_transaction_follows_its_commit_and_its_rollback() {
    let scene = Scene::start().await;
    let mut connection = scene.database.connect().await;
    let (kept, lost) = (keyed("order.placed", "k"), keyed("order.placed", "k"));
    let mut tx = connection.begin().await.unwrap();
    publish_in_tx(&mut tx, SERVICE, &lost).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    publish_in_tx(&mut tx, SERVICE, &kept).await.unwrap();
    tx.commit().await.unwrap();

    let marker = scene.marker(Some("k")).await;

    scene.consumer.assert_only(&[&kept.id], marker).await;
    scene.end(2).await;
}

#[tokio::test]
async fn an_sql_insert_that_is_still_open_holds_nobody_back() {
    let scene = Scene::start().await;
    let mut open = scene.caller().await;
    open.begin().await;
    let id = Uuid::now_v7().to_string();
    open.sql(&format!(
        "INSERT INTO holdfast.event_outbox (id, event_type, envelope, ordering_key)
         VALUES ('{id}', 'order.placed', '{{}}', 'k')"
    ))
    .await;

    let later = scene.commit(&keyed("order.paid", "k")).await;

    scene.client.wait_for_state(&later, EventState::Published).await;
    open.commit().await;
    scene.consumer.wait_for_ids(&[&id], LONG).await;
    assert_eq!(scene.consumer.ids(), [later, id]);
    let _ = scene.commit(&event("order.placed")).await;
    scene.end(3).await;
}
