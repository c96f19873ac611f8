//! The same id again: every row of the table in design, section 3, and "put in by SQL".

use std::time::Duration;

use holdfast_proto::v1::{Event, EventState, Outcome, StagedEvent, event::Data};
use holdfast_tests::{client::event, reconcile::reconcile, scene::Scene, wait::LONG};
use sqlx::{Executor as _, PgConnection};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{gone, refusal};
use crate::tickets::end;

fn changed(event: &Event) -> Event {
    Event { data: Some(Data::Json(r#"{"n":2}"#.to_owned())), ..event.clone() }
}

fn outcomes(staged: &[StagedEvent]) -> Vec<Outcome> {
    staged.iter().map(StagedEvent::outcome).collect()
}

/// Keeps every row of the outbox undecided: whoever wants to write a verdict leaves rows that somebody is busy with.
async fn busy(scene: &Scene) -> PgConnection {
    let mut connection = scene.database.connect().await;
    connection.execute("BEGIN; SELECT FROM holdfast.event_outbox FOR UPDATE").await.unwrap();
    connection
}

#[tokio::test]
async fn the_same_request_under_its_open_ticket_is_a_duplicate() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events = [event("order.placed"), event("order.paid")];
    scene.client.stage(ticket, &events).await;

    let again = scene.client.try_stage(ticket, &events).await.unwrap();

    assert_eq!(outcomes(&again), [Outcome::Duplicate; 2]);
    caller.commit().await;
    assert_eq!(scene.end(2).await.published, 2);
}

#[tokio::test]
async fn the_same_request_after_the_callers_commit_is_a_duplicate_before_the_resolver_saw_it() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events = [event("order.placed")];
    scene.client.stage(ticket, &events).await;
    let busy = busy(&scene).await;
    caller.commit().await;

    let again = scene.client.try_stage(ticket, &events).await.unwrap();

    assert_eq!(outcomes(&again), [Outcome::Duplicate]);
    assert_eq!(reconcile(&scene.database, 1).await.unresolved, 1, "nobody has decided it yet");
    end(busy, "ROLLBACK").await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn the_same_request_after_the_callers_commit_is_a_duplicate_after_the_resolver_saw_it() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events = [event("order.placed")];
    scene.client.stage(ticket, &events).await;
    caller.commit().await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;

    let again = scene.client.try_stage(ticket, &events).await.unwrap();

    assert_eq!(outcomes(&again), [Outcome::Duplicate]);
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&[&events[0].id], marker).await;
    scene.end(2).await;
}

#[tokio::test]
async fn the_same_request_after_the_callers_rollback_is_refused_as_rolled_back() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let events = [event("order.placed")];
    scene.client.stage(ticket, &events).await;
    let busy = busy(&scene).await;
    caller.rollback().await;

    let refused = refusal(scene.client.try_stage(ticket, &events).await);

    assert_eq!(refused, (Code::FailedPrecondition, "TICKET_ROLLED_BACK".to_owned()));
    end(busy, "ROLLBACK").await;
    gone(&scene.client, &events[0].id).await;
    assert_eq!(scene.end(1).await.rows, 0);
}

#[tokio::test]
async fn the_same_ticket_with_other_content_is_a_conflict() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let first = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&first)).await;

    let refused = refusal(scene.client.try_stage(ticket, &[event("order.paid"), changed(&first)]).await);

    assert_eq!(refused, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    assert_eq!(reconcile(&scene.database, 1).await.unresolved, 1, "its neighbour was not written either");
    caller.commit().await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_delivered_event_again_is_a_duplicate_with_its_content_and_a_conflict_with_another() {
    let scene = Scene::start().await;
    let first = event("order.placed");
    scene.commit(&first).await;
    scene.client.wait_for_state(&first.id, EventState::Published).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let same = scene.client.try_stage(ticket, std::slice::from_ref(&first)).await.unwrap();
    let other = refusal(scene.client.try_stage(ticket, &[changed(&first)]).await);

    assert_eq!(outcomes(&same), [Outcome::Duplicate]);
    assert_eq!(other, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    // It is not the second transaction's event: its rollback takes nothing away.
    caller.rollback().await;
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&[&first.id], marker).await;
    scene.end(2).await;
}

#[tokio::test]
async fn a_committed_event_that_is_not_decided_yet_counts_as_committed() {
    let scene = Scene::start().await;
    let mut first_caller = scene.caller().await;
    let first_ticket = first_caller.begin_with_ticket().await;
    let first = event("order.placed");
    scene.client.stage(first_ticket, std::slice::from_ref(&first)).await;
    let busy = busy(&scene).await;
    first_caller.commit().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let same = scene.client.try_stage(ticket, std::slice::from_ref(&first)).await.unwrap();
    let other = refusal(scene.client.try_stage(ticket, &[changed(&first)]).await);

    assert_eq!(outcomes(&same), [Outcome::Duplicate]);
    assert_eq!(other, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    end(busy, "ROLLBACK").await;
    caller.rollback().await;
    scene.client.wait_for_state(&first.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn an_id_of_another_open_transaction_is_aborted_and_never_a_duplicate() {
    let scene = Scene::start().await;
    let (mut one, mut two) = (scene.caller().await, scene.caller().await);
    let (first, second) = (one.begin_with_ticket().await, two.begin_with_ticket().await);
    let event = event("order.placed");
    scene.client.stage(first, std::slice::from_ref(&event)).await;

    for again in [event.clone(), changed(&event)] {
        let status = scene.client.try_stage(second, &[again]).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
        assert_eq!(status.get_details_error_info().unwrap().reason, "EVENT_CONTENDED");
        let after = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert!(after > Duration::ZERO && after <= Duration::from_secs(5), "{after:?}");
    }
    reconcile(&scene.database, 1).await;

    // The hung first attempt goes, and the second one's event does not go with it.
    one.rollback().await;
    let staged = holdfast_tests::wait::until("the second attempt to be staged", LONG, || async {
        scene.client.try_stage(second, std::slice::from_ref(&event)).await
    })
    .await;
    assert_eq!(outcomes(&staged), [Outcome::Staged]);
    two.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    let census = scene.end(2).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (1, 1));
}

#[tokio::test]
async fn a_rolled_back_attempt_is_replaced_whole_and_counted_once() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let mut wanted = Vec::new();
    for _ in 0..15 {
        caller.begin().await;
        caller.sql("SAVEPOINT s").await;
        let first = caller.ticket().await;
        let old = event("order.placed");
        scene.client.stage(first, std::slice::from_ref(&old)).await;
        let what = format!("SELECT seq FROM holdfast.event_outbox WHERE id = '{}'", old.id);
        let before = scene.database.one::<i64>(&what).await;
        // At once, so that more often than not the second attempt comes before the resolver.
        caller.sql("ROLLBACK TO SAVEPOINT s").await;
        let second = caller.ticket().await;
        let new = Event { r#type: "order.changed".to_owned(), ..changed(&old) };
        let staged = scene.client.try_stage(second, std::slice::from_ref(&new)).await.unwrap();

        assert_eq!(outcomes(&staged), [Outcome::Staged]);
        let row = format!(
            "SELECT concat_ws(' ', event_type, envelope -> 'data' ->> 'n', attempts, claim_generation, ticket, seq > {before})
             FROM holdfast.event_outbox WHERE id = '{}'",
            new.id
        );
        let row: String = scene.database.one(&row).await;
        assert_eq!(row, format!("order.changed 2 0 0 {second} t"));
        caller.commit().await;
        wanted.push(new.id);
    }

    let delivered = scene.consumer.wait_for_ids(&wanted, LONG).await;
    assert!(delivered.iter().all(|one| one.routing_key == "order.changed" && one.json["data"]["n"] == 2));
    let census = scene.end(30).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (15, 15));
}

#[tokio::test]
async fn an_id_that_was_put_in_by_sql_is_a_conflict() {
    let scene = Scene::start().await;
    let event = event("order.placed");
    scene
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope) VALUES ('{}', 'order.placed', '{{}}')",
            event.id
        ))
        .await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let refused = refusal(scene.client.try_stage(ticket, std::slice::from_ref(&event)).await);

    assert_eq!(refused, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    caller.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn what_is_new_beside_a_duplicate_is_staged() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let (old, new) = (event("order.placed"), event("order.paid"));
    scene.client.stage(ticket, std::slice::from_ref(&old)).await;

    let both = scene.client.try_stage(ticket, &[new.clone(), old.clone()]).await.unwrap();

    assert_eq!(outcomes(&both), [Outcome::Staged, Outcome::Duplicate]);
    assert_eq!([&both[0].id, &both[1].id], [&new.id, &old.id]);
    caller.commit().await;
    assert_eq!(scene.end(2).await.published, 2);
}

#[tokio::test]
async fn an_event_without_an_id_gets_one_and_is_a_new_event_each_time() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let nameless = Event { id: String::new(), ..event("order.placed") };

    let one = scene.client.try_stage(ticket, std::slice::from_ref(&nameless)).await.unwrap();
    let two = scene.client.try_stage(ticket, std::slice::from_ref(&nameless)).await.unwrap();

    assert_ne!(one[0].id, two[0].id);
    let versions = [&one, &two].map(|s| s[0].id.parse::<uuid::Uuid>().unwrap().get_version_num());
    assert_eq!(versions, [7, 7]);
    caller.commit().await;
    scene.consumer.wait_for_ids(&[&one[0].id, &two[0].id], LONG).await;
    scene.end(2).await;
}
