//! Unreachable, stalled and slow databases.

use std::time::Duration;

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    caller::Caller,
    client::event,
    scene::Scene,
    wait::{self, LONG},
};

use super::{Neighbour, assert_said_once, assert_unavailable, client, delivered, others_flow, refusal};

#[tokio::test]
async fn a_database_that_is_unreachable_at_start_leaves_the_others_flowing_and_comes_back() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    ill.proxy.away().await;
    let scene = stage.start().await;
    let waiting = ill.put().await;

    let staged = others_flow(&scene).await;

    let status = refusal(&scene).await;
    assert_unavailable(&status, "DATABASE_UNAVAILABLE");
    assert!(status.message().contains("refused"), "the reason is named: {}", status.message());
    assert!(!delivered(&scene, &waiting));
    assert_said_once(&scene);
    ill.proxy.pass().await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_database_that_becomes_unreachable_leaves_the_others_flowing_and_comes_back() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let scene = stage.start().await;
    ill.works(&scene).await;
    ill.proxy.away().await;
    let waiting = ill.put().await;
    scene.logs.wait_for("service database cannot be drained").await;

    let staged = others_flow(&scene).await;

    assert_unavailable(&refusal(&scene).await, "DATABASE_UNAVAILABLE");
    assert!(!delivered(&scene, &waiting));
    assert_said_once(&scene);
    ill.proxy.pass().await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_database_that_is_stalled_at_start_leaves_the_others_flowing_and_comes_back() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    ill.proxy.stall();
    let scene = stage.start().await;
    let waiting = ill.put().await;
    // It is being asked, and hears nothing.
    wait::until("a connection to the stalled database", LONG, || async {
        if ill.proxy.accepted() > 0 { Ok(()) } else { Err(()) }
    })
    .await;

    let staged = others_flow(&scene).await;

    assert_unavailable(&refusal(&scene).await, "DATABASE_UNAVAILABLE");
    assert_eq!((ill.proxy.bytes_up(), delivered(&scene, &waiting)), (0, false));
    ill.proxy.pass().await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_database_that_stalls_leaves_the_others_flowing_and_goes_on_where_it_was() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let scene = stage.start().await;
    ill.works(&scene).await;
    let mut caller = Caller::connect(&ill.database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    ill.proxy.stall();
    let (waiting, staging) = (ill.put().await, event("invoice.paid"));
    let stage_call = tokio::spawn({
        let (client, staging) = (client(&scene), staging.clone());
        async move { client.try_stage(ticket, &[staging]).await }
    });

    let staged = others_flow(&scene).await;

    assert!(!stage_call.is_finished() && !delivered(&scene, &waiting));
    ill.proxy.pass().await;
    stage_call.await.unwrap().unwrap();
    caller.commit().await;
    scene.consumer.wait_for_ids(&[waiting, staging.id], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_stalled_database_that_is_cut_off_is_reached_anew() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let scene = stage.start().await;
    ill.works(&scene).await;
    ill.proxy.stall();
    let waiting = ill.put().await;

    let staged = others_flow(&scene).await;

    // As when the machine behind the address was replaced: nothing that was under way is ever answered.
    ill.proxy.away().await;
    ill.proxy.pass().await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn heavy_a_stalled_database_does_not_hold_up_a_stop() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let scene = stage.start().await;
    ill.works(&scene).await;
    ill.proxy.stall();
    let staged = others_flow(&scene).await;

    // A stop past its time limit would say so, and no such line is announced.
    scene.end(staged).await;
}

#[tokio::test]
async fn a_slow_database_is_slow_for_its_own_service_only() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    // Each round trip takes a second: an event needs many, one after the other.
    ill.proxy.delay(Duration::from_millis(500));
    let scene = stage.start().await;
    let slow = ill.put().await;

    let staged = others_flow(&scene).await;

    let overtaken = !delivered(&scene, &slow);
    scene.consumer.wait_for_ids(&[slow], Duration::from_secs(60)).await;
    assert!(overtaken, "the others did not wait for it");
    scene.end(staged).await;
}

#[tokio::test]
async fn a_database_that_becomes_slow_still_stages_and_delivers() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let scene = stage.start().await;
    ill.works(&scene).await;
    ill.proxy.delay(Duration::from_millis(200));

    let staged = others_flow(&scene).await;
    ill.works(&scene).await;

    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.end(staged + 1).await;
}
