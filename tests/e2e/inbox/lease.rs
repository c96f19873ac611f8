//! Lease mode: at least once, fenced by generations.

use holdfast_proto::v1::{
    ConsumptionState, begin_consume_request::Binding::Lease, begin_consume_response::Outcome,
};
use holdfast_tests::{
    inbox::{Inbox, lease},
    scene::Scene,
};

use super::{id, reason};

/// Makes a running lease run out.
async fn lapse(scene: &Scene, id: &str) {
    let sql = format!(
        "UPDATE holdfast.event_inbox SET lease_until = now() - interval '1 second' WHERE envelope_id = '{id}'"
    );
    scene.database.run(&sql).await;
}

#[tokio::test]
async fn what_is_completed_is_a_duplicate_and_a_completion_may_be_said_twice() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let begun = inbox.process(&id, lease(60)).await;
    assert!(begun.lease_until.is_some());

    let first = inbox.try_complete(&id, begun.generation).await.unwrap();
    let again = inbox.try_complete(&id, begun.generation).await.unwrap();

    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!(first.processed_at, again.processed_at);
    let answer = inbox.begin(&id, lease(60)).await;
    assert!(matches!(answer, Outcome::Duplicate(_)), "{answer:?}");
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::Processed);
    scene.end(0).await;
}

#[tokio::test]
async fn a_running_lease_is_in_progress_for_others_and_its_holder_is_known_again() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mine = lease(60);
    let first = inbox.process(&id, mine.clone()).await;

    let answer = inbox.begin(&id, lease(60)).await;
    let Outcome::InProgress(wait) = answer else { panic!("{answer:?}") };
    assert!(wait.retry_after.is_some_and(|after| (1..=5).contains(&after.seconds)), "{wait:?}");
    let Lease(mut longer) = mine else { unreachable!() };
    longer.duration = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let again = inbox.process(&id, Lease(longer)).await;

    assert_eq!((again.attempt, again.generation), (first.attempt, first.generation));
    let grown = again.lease_until.unwrap().seconds - first.lease_until.unwrap().seconds;
    assert!(grown >= 539, "prolonged by {grown} s");
    scene.end(0).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_taken_over_and_its_late_holder_changes_nothing() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let first = inbox.process(&id, lease(60)).await;
    lapse(&scene, &id).await;
    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::Waiting);

    let second = inbox.process(&id, lease(60)).await;

    assert_eq!((second.attempt, second.generation), (2, 2));
    let late = inbox.try_complete(&id, first.generation).await.unwrap_err();
    assert_eq!(reason(&late), ("CONSUMPTION_STALE".into(), "no".into()));
    let seen = inbox.get(&id).await;
    assert_eq!((seen.state(), seen.lost_starts), (ConsumptionState::Begun, 1));
    inbox.try_complete(&id, second.generation).await.unwrap();
    let late = inbox.try_complete(&id, first.generation).await.unwrap_err();
    assert_eq!(reason(&late).0, "CONSUMPTION_STALE", "it was not his");
    scene.end(0).await;
}

#[tokio::test]
async fn a_late_holder_completes_as_long_as_nobody_has_begun_since() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let begun = inbox.process(&id, lease(60)).await;
    lapse(&scene, &id).await;

    assert!(!inbox.try_complete(&id, begun.generation).await.unwrap().duplicate);

    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::Processed);
    scene.end(0).await;
}

#[tokio::test]
async fn three_leases_that_ran_out_end_the_series() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    for n in 1..=3 {
        assert_eq!(inbox.process(&id, lease(60)).await.attempt, n);
        lapse(&scene, &id).await;
    }

    let letter = holdfast_tests::inbox::dead_letter(inbox.begin(&id, lease(60)).await);

    assert_eq!(letter.cause(), holdfast_proto::v1::DeadLetterCause::LostStarts);
    assert!(letter.token.starts_with(&format!("dlxcap:{id}:orders.payments:")), "{letter:?}");
    scene.end(0).await;
}
