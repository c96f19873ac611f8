//! The consumer of `client/examples/per_diem_payments.rs`: its input replayed, doubled and in another order is one payment and one event
//! (ADR-022, #1179).

use holdfast_tests::{client::event, scene::Scene, wait::LONG};
use serde_json::json;

use super::*;

#[expect(dead_code, reason = "an example is a program of its own; its main is not ours")]
#[path = "../../../client/examples/per_diem_payments.rs"]
mod example;

fn activated(placement: &str, period: u32) -> holdfast_client::v1::Event {
    let data = json!({
        "placement": placement, "county": "A", "period_start": format!("2026-{period:02}-01"),
        "period_end": format!("2026-{period:02}-28"), "days": 10,
    });
    let data = Some(holdfast_client::v1::event::Data::Json(data.to_string()));
    holdfast_client::v1::Event { data, ..event("placement.activated") }
}

#[tokio::test]
async fn replays_doubles_and_any_order_make_one_payment_and_one_event_a_placement_and_period() {
    let scene = Scene::start().await;
    scene.logs.expect("the handler failed");
    let pool = pool(&scene.database, 4).await;
    sqlx::raw_sql(example::SCHEMA).execute(&pool).await.unwrap();
    let outbox = holdfast_tests::client::outbox(scene.server.address(), SERVICE);
    let consumer = Consumer::builder(inbox(scene.server.address(), SERVICE), scene.vhost.url(), QUEUE)
        .bind(EXCHANGE, "placement.activated")
        .backoff(Duration::from_millis(20), Duration::from_millis(50))
        .concurrency(4)
        .in_tx(pool.clone(), move |tx, message| {
            let outbox = outbox.clone();
            Box::pin(async move { example::pay(tx, &outbox, message).await.map(|_| ()) })
        })
        .unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(consumer.run(stop.clone().cancelled_owned()));
    scene.logs.wait_for("consuming").await;
    // The rate comes after the first event, which needs it.
    let early = scene.commit(&activated("p1", 1)).await;
    scene.logs.wait_for("no rate for A").await;
    scene.database.run("INSERT INTO per_diem_rates VALUES ('A', 700)").await;
    is_processed(&scene.database, &early).await;

    // Each payment is announced by several events with ids of their own, as another process might; backwards, and each delivery twice.
    let mut events = Vec::new();
    for period in (1..=6).rev() {
        for placement in ["p2", "p1", "p3"] {
            events.push(activated(placement, period));
            events.push(activated(placement, period));
        }
    }
    scene.commit_all(&events).await;
    for delivery in scene.consumer.wait_for_ids(&events.iter().map(|e| &e.id).collect::<Vec<_>>(), LONG).await
    {
        if delivery.routing_key == "placement.activated" {
            put_again(&scene, &delivery).await;
        }
    }
    for event in &events {
        is_processed(&scene.database, &event.id).await;
    }
    wait_for_empty(&scene).await;
    // A replay long after the inbox has forgotten, with the rates away: it ends well before it asks for them.
    scene.database.run("DELETE FROM holdfast.event_inbox; DELETE FROM per_diem_rates").await;
    let first = scene.consumer.wait_for_ids(&[&early], LONG).await;
    put_again(&scene, first.iter().find(|one| one.id == early).unwrap()).await;
    is_processed(&scene.database, &early).await;
    wait_for_empty(&scene).await;

    let payments: i64 = scene.database.one("SELECT count(*) FROM payments WHERE cents = 7000").await;
    let staged: i64 = scene
        .database
        .one("SELECT count(*) FROM holdfast.event_outbox WHERE event_type = 'payment.due'")
        .await;
    assert_eq!((payments, staged), (18, 18));
    stop.cancel();
    task.await.unwrap().unwrap();
    scene.end(1 + 36 + 18).await;
}
