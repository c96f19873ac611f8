//! A key's order with holds in it (design, section 4's table, and invariant 4).

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, ids, keyed},
    holds::{Holds, commit, pair},
    scene::Scene,
    server::ServerInProcess,
    wait::LONG,
};

use crate::staging::gate::Gate;

#[tokio::test]
async fn a_held_event_holds_nobody_of_its_key_back() {
    let scene = Scene::start().await;
    let op = pair("op", 1);
    let (held, later) = (keyed("order.placed", "k"), keyed("order.paid", "k"));
    commit(&scene, &op, std::slice::from_ref(&held)).await;

    scene.commit(&later).await;

    scene.client.wait_for_state(&later.id, EventState::Published).await;
    assert_eq!(scene.client.get(&held.id).await.unwrap().state(), EventState::Held);
    Holds::of(&scene).release(&op).await;
    scene.consumer.wait_for_ids(&[&later.id, &held.id], LONG).await;
    assert_eq!(scene.consumer.ids(), [later.id, held.id]);
    scene.end(2).await;
}

#[tokio::test]
async fn what_is_staged_after_a_release_was_final_follows_it_with_two_replicas_too() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let holds = [Holds::of(&scene), Holds::at(second.address())];
    let mut pairs = Vec::new();
    for n in 0..30 {
        let (op, key) = (pair(&format!("op-{n}"), 1), format!("k-{n}"));
        let events = [keyed("order.placed", &key), keyed("order.paid", &key)];
        commit(&scene, &op, &events).await;

        assert_eq!(holds[n % 2].release(&op).await, (2, false));
        let after = keyed("order.shipped", &key);
        scene.commit(&after).await;

        pairs.push([ids(&events), vec![after.id]].concat());
    }
    let all = pairs.concat();
    scene.consumer.wait_for_ids(&all, LONG).await;
    let came = scene.consumer.ids();
    for wanted in pairs {
        let of_key: Vec<_> = came.iter().filter(|id| wanted.contains(id)).cloned().collect();
        assert_eq!(of_key, wanted);
    }
    second.stop().await;
    scene.end(90).await;
}

#[tokio::test]
async fn more_rows_of_one_key_than_a_slice_are_released_in_their_order() {
    let scene = Scene::start().await;
    super::put_held(&scene.database, "op", 1, 1_300, Some("k")).await;
    scene
        .database
        .run("UPDATE holdfast.event_outbox SET event_type = 'order.gate' WHERE envelope ->> 'n' = '1200'")
        .await;
    let gate = Gate::before_the_release_of(&scene.database, "order.gate").await;
    gate.close().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));

    let (released, ()) = tokio::join!(holds.release(&op), async {
        gate.somebody_waits().await;
        let first_left: i64 = scene
            .database
            .one("SELECT min((envelope ->> 'n')::bigint) FROM holdfast.event_outbox WHERE hold_operation_id IS NOT NULL")
            .await;
        gate.open().await;
        assert_eq!(first_left, 1_001, "the first slice has the first rows");
    });

    assert_eq!(released, (1_300, false));
    let came = scene.consumer.wait_for(1_300, LONG * 2).await;
    let numbers: Vec<i64> = came.iter().map(|one| one.json["n"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=1_300).collect::<Vec<i64>>());
    scene.end(1_300).await;
}

#[tokio::test]
async fn held_and_free_events_of_a_key_in_one_transaction_go_each_when_they_may() {
    let scene = Scene::start().await;
    let op = pair("op", 1);
    let (held, free) = (keyed("order.placed", "k"), keyed("order.paid", "k"));
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    holdfast_tests::holds::try_stage(&scene.client, ticket, &op, std::slice::from_ref(&held)).await.unwrap();
    scene.client.stage(ticket, std::slice::from_ref(&free)).await;
    caller.commit().await;
    scene.client.confirm(ticket).await;

    scene.client.wait_for_state(&free.id, EventState::Published).await;
    scene.client.wait_for_state(&held.id, EventState::Held).await;
    let unkeyed = event("order.noted");
    commit(&scene, &op, std::slice::from_ref(&unkeyed)).await;
    Holds::of(&scene).release(&op).await;
    scene.consumer.wait_for_ids(&[&held.id, &unkeyed.id], LONG).await;
    scene.end(3).await;
}
