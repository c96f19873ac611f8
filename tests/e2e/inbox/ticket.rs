//! Ticket mode: the lines of BeginConsume's table, against real transactions.

use holdfast_proto::v1::{
    ConsumptionState, begin_consume_request::Binding::Ticket, begin_consume_response::Outcome,
};
use holdfast_tests::{
    client::event,
    inbox::{Inbox, delivery, process},
    scene::Scene,
};

use super::{becomes, id, reason};

#[tokio::test]
async fn a_message_whose_transaction_committed_is_a_duplicate_at_once_and_for_good() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let begun = inbox.process(&id, Ticket(ticket)).await;
    assert_eq!((begun.attempt, begun.generation, begun.lease_until), (1, 1, None));
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::Begun);
    caller.commit().await;

    let next = caller.begin_with_ticket().await;
    let answer = inbox.begin(&id, Ticket(next)).await;

    assert!(matches!(answer, Outcome::Duplicate(_)), "{answer:?}");
    caller.rollback().await;
    let seen = inbox.get(&id).await;
    assert_eq!((seen.state(), seen.generation, seen.failures), (ConsumptionState::Processed, 1, 0));
    assert_eq!((seen.source_service.as_str(), seen.event_type.as_str()), ("shop", "order.placed"));
    scene.end(0).await;
}

#[tokio::test]
async fn the_resolver_marks_what_committed_and_counts_what_was_rolled_back_without_being_asked() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let (committed, rolled_back) = (id(), id());
    let mut caller = scene.caller().await;
    for id in [&committed, &rolled_back] {
        let ticket = caller.begin_with_ticket().await;
        inbox.process(id, Ticket(ticket)).await;
        if *id == committed { caller.commit().await } else { caller.rollback().await }
    }

    becomes(&inbox, &committed, "processed", |seen| seen.state() == ConsumptionState::Processed).await;
    let seen =
        becomes(&inbox, &rolled_back, "waiting", |seen| seen.state() == ConsumptionState::Waiting).await;

    assert_eq!((seen.lost_starts, seen.failures), (1, 0));
    scene.end(0).await;
}

#[tokio::test]
async fn the_same_ticket_again_gets_the_same_start() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let first = inbox.process(&id, Ticket(ticket)).await;
    let again = inbox.process(&id, Ticket(ticket)).await;

    assert_eq!(first, again);
    caller.commit().await;
    let answer = inbox.begin(&id, Ticket(ticket)).await;
    assert!(matches!(answer, Outcome::Duplicate(_)), "its own commit, asked late: {answer:?}");
    scene.end(0).await;
}

#[tokio::test]
async fn the_same_ticket_after_its_rollback_is_refused_and_its_start_counted_once() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    inbox.process(&id, Ticket(ticket)).await;
    caller.rollback().await;

    let refused = inbox.try_begin(delivery(&id, Ticket(ticket))).await.unwrap_err();

    // The resolver may have written the verdict first: then it is a ticket like any other that is not open.
    let (reason, applied) = reason(&refused);
    assert!(["TICKET_ROLLED_BACK", "TICKET_NOT_OPEN"].contains(&reason.as_str()), "{reason}");
    assert_eq!(applied, "no");
    assert_eq!(inbox.get(&id).await.lost_starts, 1);
    scene.end(0).await;
}

#[tokio::test]
async fn a_redelivery_during_the_open_transaction_is_in_progress_until_that_ends() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    for commits in [true, false] {
        let id = id();
        let (mut first, mut second) = (scene.caller().await, scene.caller().await);
        let ticket = first.begin_with_ticket().await;
        inbox.process(&id, Ticket(ticket)).await;
        let other = second.begin_with_ticket().await;

        for _ in 0..3 {
            let answer = inbox.begin(&id, Ticket(other)).await;
            let Outcome::InProgress(wait) = answer else { panic!("{answer:?}") };
            assert!(wait.retry_after.is_some_and(|after| after.nanos > 0), "{wait:?}");
        }
        if commits {
            first.commit().await
        } else {
            first.rollback().await
        }

        let answer = inbox.begin(&id, Ticket(other)).await;
        if commits {
            assert!(matches!(answer, Outcome::Duplicate(_)), "{answer:?}");
        } else {
            let begun = process(answer);
            assert_eq!((begun.attempt, begun.generation), (2, 2));
        }
        second.rollback().await;
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_start_follows_the_savepoint_that_its_ticket_was_taken_in() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    caller.begin().await;
    caller.sql("SAVEPOINT s").await;
    let ticket = caller.ticket().await;
    inbox.process(&id, Ticket(ticket)).await;
    caller.sql("ROLLBACK TO SAVEPOINT s").await;
    caller.commit().await;

    let seen = becomes(&inbox, &id, "waiting", |seen| seen.state() == ConsumptionState::Waiting).await;

    assert_eq!(seen.lost_starts, 1);
    scene.end(0).await;
}

#[tokio::test]
async fn nothing_begins_with_a_ticket_that_is_not_open() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let over = caller.begin_with_ticket().await;
    caller.commit().await;

    for ticket in [over, 4_711] {
        let refused = inbox.try_begin(delivery(&id, Ticket(ticket))).await.unwrap_err();
        assert_eq!(reason(&refused), ("TICKET_NOT_OPEN".into(), "no".into()));
    }

    let missing = inbox.try_get(&id).await.unwrap_err();
    assert_eq!(reason(&missing).0, "CONSUMPTION_NOT_FOUND");
    scene.end(0).await;
}

#[tokio::test]
async fn one_ticket_carries_several_messages_and_events_beside_them() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let ids = [id(), id(), id()];
    for id in &ids {
        inbox.process(id, Ticket(ticket)).await;
    }
    let sent = event("order.paid");
    scene.client.stage(ticket, std::slice::from_ref(&sent)).await;
    caller.commit().await;

    for id in &ids {
        becomes(&inbox, id, "processed", |seen| seen.state() == ConsumptionState::Processed).await;
    }
    assert_eq!(scene.end(1).await.published, 1);
}

#[tokio::test]
async fn each_queue_has_a_memory_of_its_own() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    inbox.process(&id, Ticket(ticket)).await;
    let mut other = delivery(&id, Ticket(ticket));
    other.consumer_queue = "orders.audit".to_owned();

    assert_eq!(process(inbox.try_begin(other).await.unwrap()).attempt, 1);

    caller.commit().await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_ticket_is_not_swept_while_an_inbox_row_names_it() {
    // Swept at once when nothing names it; the resolver that would decide the row is kept out by a lock on it.
    let scene = Scene::builder()
        .set("drain", "ticket_sweep_after", "\"1ms\"")
        .set("drain", "ticket_sweep_interval", "\"50ms\"")
        .start()
        .await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let (mut caller, mut busy, mut marker) =
        (scene.caller().await, scene.caller().await, scene.caller().await);
    let ticket = caller.begin_with_ticket().await;
    inbox.process(&id, Ticket(ticket)).await;
    busy.sql("BEGIN; SELECT FROM holdfast.event_inbox FOR UPDATE").await;
    caller.commit().await;
    // Another ticket that is over is swept meanwhile, twice over: the sweep has walked.
    for _ in 0..2 {
        marker.begin_with_ticket().await;
        marker.commit().await;
        let left = format!("SELECT count(*) FROM holdfast.ticket WHERE nonce <> {ticket}");
        holdfast_tests::wait::until_equal("other tickets", holdfast_tests::wait::LONG, 0, || {
            scene.database.one::<i64>(&left)
        })
        .await;
    }

    let there = format!("SELECT count(*) FROM holdfast.ticket WHERE nonce = {ticket}");
    assert_eq!(scene.database.one::<i64>(&there).await, 1);
    busy.rollback().await;

    becomes(&inbox, &id, "processed", |seen| seen.state() == ConsumptionState::Processed).await;
    scene.end(0).await;
}
