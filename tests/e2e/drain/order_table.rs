//! The table of design section 4, row by row: which state of an earlier event holds the later ones of its key back.

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::{event, ids, keyed},
    reconcile::reconcile,
    scene::Scene,
    wait::LONG,
};

use super::{MISSED, NOBODY, Row, bind, put, row, row_is, unbind};

#[tokio::test]
async fn a_failing_front_holds_its_followers_back_and_they_follow_in_order() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    let mut all = vec![scene.commit(&keyed(NOBODY, "k")).await];
    row_is(&scene.database, &all[0], "backing off", |row| row.backing_off).await;

    for _ in 0..5 {
        all.push(scene.commit(&keyed("order.paid", "k")).await);
    }

    for follower in &all[1..] {
        row_is(&scene.database, follower, "set aside", Row::set_aside).await;
    }
    let marker = scene.marker(Some("elsewhere")).await;
    scene.consumer.assert_only(&[""; 0], &marker).await;
    bind(&scene, NOBODY).await;
    scene.consumer.wait_for_ids(&all, LONG).await;
    assert_eq!(scene.consumer.ids()[1..], all);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(7).await;
}

#[tokio::test]
async fn followers_claimed_with_a_front_that_fails_are_given_back_unsent() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    let events = [keyed(NOBODY, "k"), keyed("order.paid", "k"), keyed("order.shipped", "k")];

    scene.commit_all(&events).await;

    row_is(&scene.database, &events[0].id, "backing off", |row| row.backing_off).await;
    for follower in &events[1..] {
        let aside = row_is(&scene.database, &follower.id, "set aside", Row::set_aside).await;
        assert_eq!(aside.attempts, 0, "{aside:?}");
    }
    assert_eq!(scene.consumer.ids(), [""; 0]);
    bind(&scene, NOBODY).await;
    scene.consumer.wait_for(3, LONG).await;
    assert_eq!(scene.consumer.ids(), ids(&events));
    scene.end(3).await;
}

#[tokio::test]
async fn an_unroutable_front_lets_its_followers_pass_where_the_service_says_so() {
    let scene = Scene::builder().set("services.orders", "unroutable_blocks", "false").start().await;
    unbind(&scene).await;
    let events = [keyed(NOBODY, "k"), keyed("order.paid", "k"), keyed("order.shipped", "k")];

    scene.commit_all(&events).await;

    let passed = ids(&events[1..]);
    scene.consumer.wait_for_ids(&passed, LONG).await;
    assert_eq!(scene.consumer.ids(), passed);
    let later = scene.commit(&keyed("order.closed", "k")).await;
    scene.client.wait_for_state(&later, EventState::Published).await;
    assert!(!row(&scene.database, &events[0].id).await.published);
    bind(&scene, NOBODY).await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(4).await;
}

#[tokio::test]
async fn keyless_events_and_those_with_an_empty_key_wait_for_nobody() {
    let scene = Scene::start().await;
    unbind(&scene).await;
    let stuck = [event(NOBODY), keyed(NOBODY, "")];
    scene.commit_all(&stuck).await;
    for one in &stuck {
        row_is(&scene.database, &one.id, "backing off", |row| row.backing_off).await;
    }

    let free = [event("order.placed"), keyed("order.placed", "")];
    scene.commit_all(&free).await;

    scene.consumer.wait_for_ids(&ids(&free), LONG).await;
    bind(&scene, NOBODY).await;
    scene.consumer.wait_for_ids(&ids(&stuck), LONG).await;
    scene.end(4).await;
}

#[tokio::test]
async fn a_parked_event_holds_the_later_ones_of_its_key_back() {
    let scene = Scene::start().await;
    let parked = put(&scene.database, "order.placed", Some("k"), &[("parked_at", "now()")]).await;

    let follower = scene.commit(&keyed("order.paid", "k")).await;

    row_is(&scene.database, &follower, "set aside", Row::set_aside).await;
    let marker = scene.marker(Some("elsewhere")).await;
    scene.consumer.assert_only(&[""; 0], &marker).await;
    // What unparking will do.
    let unpark = format!(
        "UPDATE holdfast.event_outbox SET parked_at = NULL, admitted_at = NULL WHERE id = '{parked}'"
    );
    scene.database.run(&unpark).await;
    scene.consumer.wait_for(3, LONG).await;
    assert_eq!(scene.consumer.ids(), [marker, parked, follower]);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    scene.end(3).await;
}

#[tokio::test]
async fn a_held_event_holds_nobody_back() {
    let scene = Scene::start().await;
    let hold = [("hold_operation_id", "'op'"), ("hold_generation", "1")];
    let held = put(&scene.database, "order.placed", Some("k"), &hold).await;

    let later = scene.commit(&keyed("order.paid", "k")).await;

    scene.client.wait_for_state(&later, EventState::Published).await;
    let waiting = row(&scene.database, &held).await;
    assert_eq!((waiting.generation, waiting.admitted, waiting.published), (0, false, false));
    let census = reconcile(&scene.database, 2).await;
    assert_eq!((census.held, census.published), (1, 1), "{census:?}");
    scene.end(2).await;
}
