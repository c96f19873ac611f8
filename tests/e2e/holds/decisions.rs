//! Release and drop: before the commit and after it, once and again, before the stage and after it.

use holdfast_proto::v1::{EventState, Outcome};
use holdfast_tests::{
    client::{event, ids, keyed},
    holds::{Holds, commit, pair, try_stage},
    reconcile::reconcile,
    scene::Scene,
    wait::LONG,
};
use tonic::Code;

use crate::staging::{gone, refusal};

#[tokio::test]
async fn a_held_event_waits_after_the_commit_and_leaves_when_its_pair_is_released() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let events = [event("order.placed"), event("order.paid")];
    commit(&scene, &op, &events).await;
    let waiting = scene.client.wait_for_state(&events[0].id, EventState::Held).await;
    assert_eq!(waiting.hold, Some(op.clone()));
    let marker = scene.marker(None).await;
    scene.consumer.assert_only::<String>(&[], &marker).await;

    assert_eq!(holds.release(&op).await, (2, false));

    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    let sent = scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    assert_eq!(sent.hold, None);
    assert_eq!(scene.end(3).await.published, 3);
}

#[tokio::test]
async fn a_release_before_the_commit_holds_nothing_back_after_it() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let (mut kept, mut lost) = (scene.caller().await, scene.caller().await);
    let (ticket, other) = (kept.begin_with_ticket().await, lost.begin_with_ticket().await);
    let (committed, rolled_back) = (event("order.placed"), event("order.placed"));
    try_stage(&scene.client, ticket, &op, std::slice::from_ref(&committed)).await.unwrap();
    try_stage(&scene.client, other, &op, std::slice::from_ref(&rolled_back)).await.unwrap();

    assert_eq!(holds.release(&op).await, (2, false));

    for event in [&committed, &rolled_back] {
        assert_eq!(scene.client.get(&event.id).await.unwrap().state(), EventState::Unresolved);
    }
    kept.commit().await;
    lost.rollback().await;
    scene.client.wait_for_state(&committed.id, EventState::Published).await;
    gone(&scene.client, &rolled_back.id).await;
    scene.consumer.assert_only(&[&committed.id], scene.marker(None).await).await;
    let census = scene.end(3).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (2, 1));
}

#[tokio::test]
async fn a_late_stage_of_a_released_pair_is_not_held() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    assert_eq!(holds.release(&op).await, (0, false), "a pair that was never seen");

    let late = event("order.placed");
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, &op, std::slice::from_ref(&late)).await.unwrap();
    let again = try_stage(&scene.client, ticket, &op, std::slice::from_ref(&late)).await.unwrap();

    assert_eq!(again[0].outcome(), Outcome::Duplicate, "the hold is what was sent, not what became of it");
    caller.commit().await;
    scene.client.confirm(ticket).await;
    scene.client.wait_for_state(&late.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_drop_deletes_what_is_committed_and_what_is_not_and_a_late_stage_is_refused() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let (committed, open, late) = (event("order.placed"), event("order.placed"), event("order.placed"));
    commit(&scene, &op, std::slice::from_ref(&committed)).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, &op, std::slice::from_ref(&open)).await.unwrap();

    assert_eq!(holds.drop_held(&op).await, (2, false));

    let census = reconcile(&scene.database, 2).await;
    assert_eq!((census.rows, census.gone["dropped"]), (0, 2));
    for event in [&open, &late] {
        let refused = try_stage(&scene.client, ticket, &op, std::slice::from_ref(event)).await;
        assert_eq!(refusal(refused), (Code::FailedPrecondition, "HOLD_DROPPED".to_owned()));
    }
    caller.commit().await;
    scene.client.confirm(ticket).await;
    assert_eq!(holds.drop_held(&op).await, (0, true));
    scene.consumer.assert_only::<String>(&[], scene.marker(None).await).await;
    let discarded = scene.server.metric("holdfast_discarded_total", "reason=\"dropped\"");
    assert!((discarded - 2.0).abs() < f64::EPSILON, "{discarded}");
    scene.end(3).await;
}

#[tokio::test]
async fn a_second_release_finds_nothing_to_do_and_says_so() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let events = [event("order.placed"), event("order.placed")];
    commit(&scene, &op, &events).await;

    assert_eq!(holds.release(&op).await, (2, false));
    assert_eq!(holds.release(&op).await, (0, true));

    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    assert_eq!(scene.end(2).await.published, 2);
}

#[tokio::test]
async fn generations_of_an_operation_are_decided_apart() {
    let scene = Scene::start().await;
    let holds = Holds::of(&scene);
    let [zero, one, other] = [("op", 0), ("op", 1), ("op2", 1)].map(|(id, generation)| pair(id, generation));
    let events = [event("order.placed"), event("order.placed"), event("order.placed")];
    for (op, event) in [&zero, &one, &other].into_iter().zip(&events) {
        commit(&scene, op, std::slice::from_ref(event)).await;
    }

    assert_eq!(holds.release(&zero).await, (1, false));
    assert_eq!(holds.drop_held(&one).await, (1, false));

    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    gone(&scene.client, &events[1].id).await;
    scene.client.wait_for_state(&events[2].id, EventState::Held).await;
    let census = scene.end(3).await;
    assert_eq!((census.published, census.held, census.gone["dropped"]), (1, 1, 1));
}

#[tokio::test]
async fn a_held_event_of_a_transaction_or_savepoint_that_rolls_back_goes_with_it() {
    let scene = Scene::start().await;
    let op = pair("op", 1);
    let [kept, undone, lost] = [(); 3].map(|()| event("order.placed"));
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, &op, std::slice::from_ref(&kept)).await.unwrap();
    caller.sql("SAVEPOINT s").await;
    let inner = caller.ticket().await;
    try_stage(&scene.client, inner, &op, std::slice::from_ref(&undone)).await.unwrap();
    caller.sql("ROLLBACK TO SAVEPOINT s").await;
    caller.commit().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, &op, std::slice::from_ref(&lost)).await.unwrap();
    caller.rollback().await;

    for event in [&undone, &lost] {
        gone(&scene.client, &event.id).await;
    }
    scene.client.wait_for_state(&kept.id, EventState::Held).await;

    assert_eq!(Holds::of(&scene).release(&op).await, (1, false));
    scene.client.wait_for_state(&kept.id, EventState::Published).await;
    let census = scene.end(3).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (1, 2));
}

#[tokio::test]
async fn an_event_whose_first_attempt_rolled_back_is_replaced_with_the_hold_of_the_second() {
    let scene = Scene::start().await;
    let op = pair("op", 1);
    let same = keyed("order.placed", "k");
    let mut first = scene.caller().await;
    let ticket = first.begin_with_ticket().await;
    scene.client.stage(ticket, std::slice::from_ref(&same)).await;
    first.rollback().await;

    commit(&scene, &op, std::slice::from_ref(&same)).await;

    scene.client.wait_for_state(&same.id, EventState::Held).await;
    assert_eq!(Holds::of(&scene).release(&op).await, (1, false));
    scene.client.wait_for_state(&same.id, EventState::Published).await;
    assert_eq!(scene.end(2).await.gone["rolled_back"], 1);
}
