//! What starts a pass: hints, the resolver, the poll as the floor; and that none of them is needed for safety
//! (design, section 4, "Wake-up"). The poll is put far away where something else must do it.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, ids, keyed},
    scene::Scene,
    wait::LONG,
};

use super::put;

#[tokio::test]
async fn a_confirmed_event_goes_out_without_the_poll() {
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").start().await;
    let warm = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&warm, EventState::Published).await;

    let id = scene.commit(&event("order.placed")).await;

    scene.consumer.wait_for_ids(&[id], LONG).await;
    scene.end(2).await;
}

#[tokio::test]
async fn a_staged_event_goes_out_without_confirm_and_without_the_poll() {
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").start().await;
    for _ in 0..3 {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        let one = event("order.placed");
        scene.client.stage(ticket, std::slice::from_ref(&one)).await;
        caller.commit().await;

        scene.consumer.wait_for_ids(&[one.id], LONG).await;
    }
    scene.end(3).await;
}

#[tokio::test]
async fn a_row_that_no_hint_announces_is_found_by_the_poll() {
    let scene = Scene::builder().set("drain", "poll", "\"100ms\"").start().await;
    for _ in 0..3 {
        let id = put(&scene.database, "order.placed", None, &[]).await;
        scene.consumer.wait_for_ids(&[id], LONG).await;
    }
    scene.end(3).await;
}

#[tokio::test]
async fn a_hint_before_the_commit_and_after_a_rollback_does_no_harm() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let (kept, lost) = (keyed("order.placed", "k"), keyed("order.placed", "k"));
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&lost)).await;
    scene.client.confirm(ticket).await;
    caller.rollback().await;
    scene.client.confirm(ticket).await;
    scene.client.confirm(ticket.wrapping_add(1)).await;
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&kept)).await;
    scene.client.confirm(ticket).await;
    caller.commit().await;

    let marker = scene.marker(Some("k")).await;

    scene.consumer.assert_only(&[kept.id], marker).await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_transaction_of_more_events_than_a_batch_goes_out_whole_and_in_order() {
    let scene = Scene::builder().set("drain", "poll", "\"60s\"").set("drain", "batch", "10").start().await;
    let events: Vec<_> = (0..95).map(|_| keyed("order.placed", "k")).collect();

    scene.commit_all(&events).await;

    scene.consumer.wait_for(95, LONG).await;
    assert_eq!(scene.consumer.ids(), ids(&events));
    scene.end(95).await;
}
