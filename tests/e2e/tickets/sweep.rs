//! Tickets are swept when nothing can need them any more: free for long enough, and named by no undecided row (design,
//! section 3; [E]: `taken_at` is old in a long transaction).

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::event,
    reconcile::reconcile,
    scene::Scene,
    wait::{self, LONG},
};
use sqlx::Executor as _;

use super::end;

async fn scene(after: &str) -> Scene {
    Scene::builder()
        .set("drain", "ticket_sweep_after", after)
        .set("drain", "ticket_sweep_interval", "\"20ms\"")
        .start()
        .await
}

async fn rows(scene: &Scene, ticket: i64) -> i64 {
    scene.database.one(&format!("SELECT count(*) FROM holdfast.ticket WHERE nonce = {ticket}")).await
}

async fn swept(scene: &Scene, ticket: i64) {
    wait::until_equal("rows of the ticket", LONG, 0, || rows(scene, ticket)).await;
}

/// A ticket that nothing needs is swept after this call began: the sweeper has been round since.
async fn a_round_of_the_sweeper(scene: &Scene) {
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    caller.commit().await;
    swept(scene, ticket).await;
    caller.close().await;
}

#[tokio::test]
async fn a_ticket_that_nothing_needs_is_swept() {
    let scene = scene("\"0s\"").await;

    a_round_of_the_sweeper(&scene).await;

    assert!(scene.server.metric("holdfast_tickets_swept_total", "service=\"orders\"") >= 1.0);
    scene.end(0).await;
}

#[tokio::test]
async fn an_old_ticket_of_a_long_transaction_is_not_swept_before_its_event_is_decided() {
    let scene = scene("\"0s\"").await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    // As if it had been taken long ago; the sweeper must not look at this.
    caller.sql(&format!("UPDATE holdfast.ticket SET taken_at = '-infinity' WHERE nonce = {ticket}")).await;
    let event = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;
    a_round_of_the_sweeper(&scene).await;
    // While somebody is busy with the row, no verdict can be written.
    let mut busy = scene.database.connect().await;
    busy.execute("BEGIN; SELECT FROM holdfast.event_outbox FOR UPDATE").await.unwrap();
    caller.commit().await;

    for _ in 0..3 {
        a_round_of_the_sweeper(&scene).await;
    }

    assert_eq!(rows(&scene, ticket).await, 1, "an undecided row names it");
    assert_eq!(reconcile(&scene.database, 1).await.unresolved, 1);
    end(busy, "ROLLBACK").await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    swept(&scene, ticket).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_ticket_is_kept_for_the_time_that_a_late_stage_could_need_it() {
    let scene = scene("\"2m\"").await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    caller.sql(&format!("UPDATE holdfast.ticket SET taken_at = '-infinity' WHERE nonce = {ticket}")).await;
    caller.commit().await;
    // Three rounds of the sweeper, each seen to begin: the first two have ended when the third one begins.
    for _ in 0..3 {
        let mut lock = scene.database.connect().await;
        lock.execute("BEGIN; LOCK TABLE holdfast.ticket IN ACCESS EXCLUSIVE MODE").await.unwrap();
        wait::until_equal("a sweeper before the table", LONG, true, || async {
            scene
                .database
                .one::<bool>(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                         AND query LIKE '-- The sweeper%' AND wait_event_type = 'Lock')",
                )
                .await
        })
        .await;
        end(lock, "ROLLBACK").await;
    }

    assert_eq!(rows(&scene, ticket).await, 1);
    assert!(scene.server.metric("holdfast_tickets_swept_total", "service=\"orders\"").abs() < f64::EPSILON);
    scene.end(0).await;
}

#[tokio::test]
async fn what_was_swept_is_still_a_duplicate_when_it_is_staged_again() {
    let scene = scene("\"0s\"").await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;
    caller.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    swept(&scene, ticket).await;

    let again = scene.client.try_stage(ticket, std::slice::from_ref(&event)).await.unwrap();

    assert_eq!(again[0].outcome(), holdfast_proto::v1::Outcome::Duplicate);
    scene.end(1).await;
}
