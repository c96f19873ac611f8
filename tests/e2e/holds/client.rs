//! Holds through the client library.

use holdfast_client::outbox::{self, StageError};
use holdfast_proto::v1::{ErrorReason, EventState, Outcome};
use holdfast_tests::{
    scene::{SERVICE, Scene},
    wait::LONG,
};
use sqlx::Connection as _;

use holdfast_tests::client::outbox as outbox_at;

#[tokio::test]
async fn the_library_stages_with_a_hold_and_releases_drops_and_lists() {
    let scene = Scene::start().await;
    let outbox = outbox_at(scene.server.address(), SERVICE);
    let mut connection = scene.database.connect().await;
    let [released, dropped] = [1, 2].map(|generation| outbox.hold("finalize-17", generation));
    let mut ids = Vec::new();
    for hold in [&released, &dropped] {
        let mut tx = connection.begin().await.unwrap();
        let staged = hold.stage_in_tx(&mut tx, [outbox::event("order.placed")]).await.unwrap();
        assert_eq!(staged.events[0].outcome(), Outcome::Staged);
        ids.push(staged.events[0].id.clone());
        tx.commit().await.unwrap();
        outbox.confirm_staged(staged.ticket).await.unwrap();
    }
    for id in &ids {
        scene.client.wait_for_state(id, EventState::Held).await;
    }
    let listed = outbox.list_held(Some("finalize-17"), "").await.unwrap();
    let shown: Vec<_> =
        listed.operations.iter().map(|one| (one.hold.clone().unwrap().generation, one.held)).collect();
    assert_eq!((shown, listed.next_page_token.as_str()), (vec![(1, 1), (2, 1)], ""));

    let answer = released.release_held().await.unwrap();
    assert_eq!((answer.released, answer.decided_before, answer.complete), (1, false, true));
    let answer = dropped.drop_held().await.unwrap();
    assert_eq!((answer.dropped, answer.decided_before, answer.complete), (1, false, true));

    scene.consumer.wait_for_ids(&ids[..1], LONG).await;
    let refused = dropped.release_held().await.unwrap_err();
    assert_eq!(refused.reason(), Some(ErrorReason::HoldAlreadyDecided));
    assert!(refused.is_certainly_not_applied());
    let mut tx = connection.begin().await.unwrap();
    let late = dropped.stage_in_tx(&mut tx, [outbox::event("order.placed")]).await.unwrap_err();
    let StageError::Call(late) = late else { unreachable!("{late}") };
    assert_eq!(late.reason(), Some(ErrorReason::HoldDropped));
    tx.rollback().await.unwrap();
    assert!(outbox.list_held(None, "").await.unwrap().operations.is_empty());
    let census = scene.end(2).await;
    assert_eq!((census.published, census.gone["dropped"]), (1, 1));
}
