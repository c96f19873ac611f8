//! What a message looks like, and what a row needs to count as published (design, sections 2 and 4; invariant 3).

use holdfast_proto::v1::{Event, EventState};
use holdfast_tests::{
    client::{event, keyed},
    reconcile::reconcile,
    scene::{SERVICE, Scene},
    wait::LONG,
};

use super::{put, row, row_is};

#[tokio::test]
async fn a_message_carries_the_properties_of_its_event() {
    let scene = Scene::start().await;
    let traced = Event {
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        tracestate: "vendor=opaque".to_owned(),
        ..keyed("order.placed", "k")
    };
    scene.commit(&traced).await;

    let seen = scene.consumer.wait_for(1, LONG).await;

    let (delivery, properties) = (&seen[0], &seen[0].properties);
    let created: i64 =
        scene.database.one("SELECT extract(epoch FROM created_at)::bigint FROM holdfast.event_outbox").await;
    assert_eq!(delivery.routing_key, "order.placed");
    assert_eq!(properties.kind().as_ref().map(ToString::to_string).as_deref(), Some("order.placed"));
    assert_eq!(properties.message_id().as_ref().map(ToString::to_string), Some(traced.id.clone()));
    assert_eq!(properties.app_id().as_ref().map(ToString::to_string).as_deref(), Some(SERVICE));
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(*properties.timestamp(), Some(created.unsigned_abs()));
    assert_eq!(
        properties.content_type().as_ref().map(ToString::to_string).as_deref(),
        Some("application/cloudevents+json")
    );
    assert_eq!(delivery.header("traceparent").as_ref(), Some(&traced.traceparent));
    assert_eq!(delivery.header("tracestate").as_ref(), Some(&traced.tracestate));
    assert_eq!(delivery.json["type"], "order.placed");
    scene.end(1).await;
}

#[tokio::test]
async fn an_event_without_trace_context_has_no_trace_headers() {
    let scene = Scene::start().await;
    scene.commit(&event("order.placed")).await;

    let seen = scene.consumer.wait_for(1, LONG).await;

    assert_eq!((seen[0].header("traceparent"), seen[0].header("tracestate")), (None, None));
    scene.end(1).await;
}

#[tokio::test]
async fn an_event_type_of_300_bytes_put_in_by_sql_neither_panics_nor_stops_others() {
    let scene = Scene::start().await;
    let monster = put(&scene.database, &"x".repeat(300), None, &[]).await;
    scene.logs.expect("an event is parked");
    let failed = row_is(&scene.database, &monster, "refused", |row| row.attempts > 0).await;
    assert!(failed.error.contains("255 bytes"), "{failed:?}");

    let other = scene.commit(&event("order.placed")).await;

    scene.client.wait_for_state(&other, EventState::Published).await;
    assert_eq!(scene.consumer.ids(), [other]);
    reconcile(&scene.database, 2).await;
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_row_created_ahead_of_the_clock_is_stamped_once_and_not_published_again() {
    let scene = Scene::start().await;
    let early =
        put(&scene.database, "order.placed", Some("k"), &[("created_at", "now() + interval '1 day'")]).await;
    scene.client.wait_for_state(&early, EventState::Published).await;

    // Two more passes over the same outbox, the later one after the earlier one's event was stamped.
    let next = scene.marker(Some("k")).await;
    scene.client.wait_for_state(&next, EventState::Published).await;
    let marker = scene.marker(Some("k")).await;

    scene.consumer.assert_only(&[&early, &next], marker).await;
    assert_eq!(row(&scene.database, &early).await.generation, 1);
    let stamped_at_creation: i64 = scene
        .database
        .one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at = created_at AND created_at > now()")
        .await;
    assert_eq!(stamped_at_creation, 1);
    scene.end(3).await;
}

#[tokio::test]
async fn a_row_created_at_infinity_stops_nobody() {
    let scene = Scene::start().await;
    // No such instant fits into the message's timestamp; the claim of everything else must not fail with it.
    let endless = put(&scene.database, "order.placed", None, &[("created_at", "'infinity'")]).await;
    let other = scene.commit(&event("order.placed")).await;

    scene.consumer.wait_for_ids(&[endless, other], LONG).await;

    scene.end(2).await;
}

#[tokio::test]
async fn a_look_up_answers_for_rows_with_times_that_no_calendar_has() {
    // One of them is past any retention.
    let scene = Scene::builder()
        .set("retention", "outbox", "\"0s\"")
        .set("retention", "inbox", "\"0s\"")
        .start()
        .await;
    let mut odd = Vec::new();
    for time in ["infinity", "20000-01-01", "4000-01-01 BC"] {
        odd.push(put(&scene.database, "order.placed", None, &[("created_at", &format!("'{time}'"))]).await);
    }

    for id in &odd {
        let found = scene.client.wait_for_state(id, EventState::Published).await;
        assert!(found.created_at.is_none(), "{found:?}");
    }

    scene.end(3).await;
}

#[tokio::test]
async fn an_envelope_that_is_no_object_stops_nobody() {
    let scene = Scene::start().await;
    let mut odd = Vec::new();
    for json in ["null", "[]", "7", "{\"traceparent\": {\"a\": 1}}"] {
        let id = put(&scene.database, "order.odd", None, &[]).await;
        scene
            .database
            .run(&format!(
                "UPDATE holdfast.event_outbox SET envelope = '{json}', published_at = NULL, claimed_at = NULL,
                        admitted_at = NULL, claim_generation = claim_generation + 1 WHERE id = '{id}'"
            ))
            .await;
        odd.push(id);
    }
    let other = scene.commit(&event("order.placed")).await;

    scene.consumer.wait_for_ids(&[odd, vec![other]].concat(), LONG).await;

    scene.end(5).await;
}
