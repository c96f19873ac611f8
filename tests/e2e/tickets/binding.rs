//! What a ticket names: one open transaction, or the savepoint it was taken in, of one database (design, section 3).

use std::collections::BTreeSet;

use holdfast_client::outbox::{TicketError, ticket};
use holdfast_proto::v1::EventState;
use holdfast_tests::{
    caller::Caller,
    client::event,
    database::{Database, Kind},
    reconcile::reconcile,
    scene::Scene,
    wait::{self, LONG},
};
use tonic::Code;

use crate::staging::{gone, refusal};

#[tokio::test]
async fn each_call_of_stage_ticket_is_a_new_ticket() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    caller.begin().await;
    let mut tickets = BTreeSet::new();
    let mut events = Vec::new();
    for _ in 0..20 {
        let ticket = caller.ticket().await;
        events.push(event("order.placed").id);
        let staged =
            holdfast_proto::v1::Event { id: events.last().unwrap().clone(), ..event("order.placed") };
        scene.client.stage(ticket, &[staged]).await;
        tickets.insert(ticket);
    }

    assert_eq!(tickets.len(), 20);
    assert!(!tickets.contains(&0));
    caller.commit().await;
    scene.consumer.wait_for_ids(&events, LONG).await;
    scene.end(20).await;
}

#[tokio::test]
async fn one_ticket_serves_many_requests_of_its_transaction() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for _ in 0..5 {
        scene.client.stage(ticket, &[event("order.placed")]).await;
    }

    caller.commit().await;

    assert_eq!(scene.end(5).await.published, 5);
}

#[tokio::test]
async fn a_ticket_taken_in_a_savepoint_is_discarded_with_it_while_the_transaction_is_open() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let outer = caller.begin_with_ticket().await;
    let (kept, lost) = (event("order.placed"), event("order.placed"));
    scene.client.stage(outer, std::slice::from_ref(&kept)).await;
    caller.sql("SAVEPOINT s").await;
    let inner = caller.ticket().await;
    scene.client.stage(inner, std::slice::from_ref(&lost)).await;

    caller.sql("ROLLBACK TO SAVEPOINT s").await;

    gone(&scene.client, &lost.id).await;
    assert_eq!(reconcile(&scene.database, 2).await.unresolved, 1, "the transaction is still open");
    let refused = refusal(scene.client.try_stage(inner, &[event("order.placed")]).await);
    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    caller.commit().await;
    let marker = scene.marker(None).await;
    scene.client.wait_for_state(&kept.id, EventState::Published).await;
    scene.consumer.wait_for_ids(&[&marker, &kept.id], LONG).await;
    let census = scene.end(3).await;
    assert_eq!((census.published, census.gone.values().sum::<i64>()), (2, 1));
}

#[tokio::test]
async fn a_ticket_taken_in_a_released_savepoint_waits_for_the_transaction() {
    let scene = Scene::start().await;
    for commits in [true, false] {
        let mut caller = scene.caller().await;
        caller.begin().await;
        caller.sql("SAVEPOINT s").await;
        let ticket = caller.ticket().await;
        let event = event("order.placed");
        scene.client.stage(ticket, std::slice::from_ref(&event)).await;
        caller.sql("RELEASE SAVEPOINT s").await;
        scene.client.confirm(ticket).await;

        let later = scene.marker(None).await;
        scene.client.wait_for_state(&later, EventState::Published).await;
        assert_eq!(scene.client.get(&event.id).await.unwrap().state(), EventState::Unresolved);

        if commits {
            caller.commit().await;
            scene.client.wait_for_state(&event.id, EventState::Published).await;
        } else {
            caller.rollback().await;
            gone(&scene.client, &event.id).await;
        }
    }
    scene.end(4).await;
}

#[tokio::test]
async fn a_ticket_taken_before_a_savepoint_is_not_undone_by_it() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    caller.sql("SAVEPOINT s").await;
    let event = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;

    caller.sql("ROLLBACK TO SAVEPOINT s").await;
    caller.commit().await;

    scene.client.wait_for_state(&event.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_ticket_of_another_database_is_refused_and_nothing_written() {
    let scene = Scene::start().await;
    let other = Database::fresh(scene.database.server(), Kind::Service).await;
    let mut caller = Caller::connect(&other.url()).await;
    let ticket = caller.begin_with_ticket().await;

    let refused = refusal(scene.client.try_stage(ticket, &[event("order.placed")]).await);

    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    caller.commit().await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_nonce_that_was_never_issued_is_refused_and_nothing_written() {
    let scene = Scene::start().await;
    for nonce in [1, -1, i64::MAX, i64::MIN, 4711] {
        let refused = refusal(scene.client.try_stage(nonce, &[event("order.placed")]).await);
        assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()), "{nonce}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_caller_that_committed_before_its_stage_is_refused_and_nothing_written() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    caller.row("kept").await;
    caller.commit().await;

    let refused = refusal(scene.client.try_stage(ticket, &[event("order.placed")]).await);

    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    scene.end(0).await;
}

#[tokio::test]
async fn the_ticket_of_a_rolled_back_attempt_cannot_be_used_again() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let old = caller.begin_with_ticket().await;
    let first = event("order.placed");
    scene.client.stage(old, std::slice::from_ref(&first)).await;
    caller.rollback().await;
    let new = caller.begin_with_ticket().await;

    let refused = refusal(scene.client.try_stage(old, &[event("order.placed")]).await);

    assert_ne!(old, new);
    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    caller.commit().await;
    gone(&scene.client, &first.id).await;
    assert_eq!(scene.end(1).await.rows, 0);
}

#[tokio::test]
async fn a_read_only_transaction_cannot_take_a_ticket() {
    let database = Database::service().await;
    let mut caller = Caller::connect(&database.url()).await;
    caller.sql("BEGIN READ ONLY").await;

    let refused = ticket(caller.connection()).await;

    assert!(matches!(refused, Err(TicketError::ReadOnly(_))), "{refused:?}");
    caller.rollback().await;
    assert_eq!(database.one::<i64>("SELECT count(*) FROM holdfast.ticket").await, 0);
}

#[tokio::test]
async fn a_ticket_taken_outside_of_a_transaction_is_over_with_its_statement() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.ticket().await;

    let refused = refusal(scene.client.try_stage(ticket, &[event("order.placed")]).await);

    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    scene.end(0).await;
}

#[tokio::test]
async fn a_killed_session_of_a_caller_discards_its_events() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(caller.connection()).await.unwrap();

    scene.database.run(&format!("SELECT pg_terminate_backend({pid})")).await;

    gone(&scene.client, &event.id).await;
    wait::until_equal("the tally", LONG, Some(1), || async {
        reconcile(&scene.database, 1).await.gone.get("rolled_back").copied()
    })
    .await;
    scene.end(1).await;
}
