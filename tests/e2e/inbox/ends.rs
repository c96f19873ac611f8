//! How starts end, how ends are counted, and when a series is over and another begins.

use holdfast_proto::v1::{
    ConsumptionState, DeadLetterCause, FailKind, begin_consume_request::Binding::Ticket,
    begin_consume_response::Outcome, fail_consume_response::Next,
};
use holdfast_tests::{
    inbox::{Inbox, dead_letter, delivery, lease, process},
    scene::Scene,
};
use uuid::Uuid;

use super::{becomes, id, reason};

#[tokio::test]
async fn five_errors_end_the_series_and_each_is_counted_once() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut token = String::new();
    for n in 1..=5 {
        let begun = inbox.process(&id, lease(60)).await;
        assert_eq!(begun.attempt, n);
        // The reply is lost, and it is said again.
        for _ in 0..2 {
            match inbox.try_fail(&id, begun.generation, FailKind::Error).await.unwrap() {
                Next::Retry(retry) => assert_eq!((retry.failures, retry.most_failures, n < 5), (n, 5, true)),
                Next::DeadLetter(letter) => {
                    assert_eq!((letter.cause(), n), (DeadLetterCause::Failures, 5));
                    token = letter.token;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    assert_eq!(dead_letter(inbox.begin(&id, lease(60)).await).token, token);
    let seen = inbox.get(&id).await;
    assert_eq!((seen.state(), seen.failures, seen.lost_starts), (ConsumptionState::ToDeadLetter, 5, 0));
    assert_eq!((seen.last_error.as_str(), seen.token), ("no such order", token));
    scene.end(0).await;
}

#[tokio::test]
async fn three_rollbacks_without_a_word_end_the_series() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    for n in 1..=3 {
        let ticket = caller.begin_with_ticket().await;
        assert_eq!(inbox.process(&id, Ticket(ticket)).await.attempt, n);
        caller.rollback().await;
    }

    let ticket = caller.begin_with_ticket().await;
    let letter = dead_letter(inbox.begin(&id, Ticket(ticket)).await);

    assert_eq!((letter.cause(), letter.already_surfaced), (DeadLetterCause::LostStarts, false));
    caller.rollback().await;
    assert_eq!(inbox.get(&id).await.lost_starts, 3);
    scene.end(0).await;
}

#[tokio::test]
async fn errors_and_lost_starts_are_counted_apart() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    for _ in 0..2 {
        let ticket = caller.begin_with_ticket().await;
        inbox.process(&id, Ticket(ticket)).await;
        caller.rollback().await;
    }
    for _ in 0..4 {
        let begun = inbox.process(&id, lease(60)).await;
        inbox.try_fail(&id, begun.generation, FailKind::Error).await.unwrap();
    }

    let begun = inbox.process(&id, lease(60)).await;

    assert_eq!((begun.attempt, begun.generation), (7, 7), "neither count is full");
    scene.end(0).await;
}

#[tokio::test]
async fn a_ticket_fails_after_its_rollback_and_not_before_whoever_finds_out_first() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    for resolver_first in [false, true] {
        let id = id();
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        let begun = inbox.process(&id, Ticket(ticket)).await;
        let open = inbox.try_fail(&id, begun.generation, FailKind::Error).await.unwrap_err();
        assert_eq!(reason(&open), ("CONSUMPTION_OPEN".into(), "no".into()));
        let open = inbox.try_complete(&id, begun.generation).await.unwrap_err();
        assert_eq!(reason(&open).0, "CONSUMPTION_OPEN");
        caller.rollback().await;
        if resolver_first {
            becomes(&inbox, &id, "counted as lost", |seen| seen.lost_starts == 1).await;
        }

        let next = inbox.try_fail(&id, begun.generation, FailKind::Error).await.unwrap();

        assert!(matches!(next, Next::Retry(retry) if retry.failures == 1), "{next:?}");
        let seen = inbox.get(&id).await;
        assert_eq!((seen.failures, seen.lost_starts), (1, 0), "resolver first: {resolver_first}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_failure_after_a_commit_whose_reply_was_lost_says_that_it_is_processed() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let begun = inbox.process(&id, Ticket(ticket)).await;
    caller.commit().await;

    let next = inbox.try_fail(&id, begun.generation, FailKind::Error).await.unwrap();

    assert!(matches!(next, Next::Duplicate(_)), "{next:?}");
    assert_eq!(inbox.get(&id).await.failures, 0);
    scene.end(0).await;
}

#[tokio::test]
async fn what_is_given_back_is_not_counted() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    for n in 1..=7 {
        let begun = inbox.process(&id, lease(60)).await;
        assert_eq!((begun.attempt, begun.generation), (1, n));
        let next = inbox.try_fail(&id, begun.generation, FailKind::GivenBack).await.unwrap();
        assert!(matches!(next, Next::Retry(_)), "{next:?}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn an_earlier_start_cannot_end_a_later_one() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let first = inbox.process(&id, lease(60)).await;
    inbox.try_fail(&id, first.generation, FailKind::Error).await.unwrap();
    let second = inbox.process(&id, lease(60)).await;

    for generation in [first.generation, second.generation + 1] {
        let late = inbox.try_fail(&id, generation, FailKind::DeadLetter).await.unwrap_err();
        assert_eq!(reason(&late), ("CONSUMPTION_STALE".into(), "no".into()));
    }

    assert_eq!(inbox.get(&id).await.state(), ConsumptionState::Begun);
    scene.end(0).await;
}

#[tokio::test]
async fn a_newer_replay_or_cycle_begins_a_new_series_with_a_new_token_and_its_redelivery_does_not() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let first = inbox.condemned(&id).await.token;
    let replay = Uuid::now_v7().to_string();
    let replayed = |cycle: i32| {
        let mut asked = delivery(&id, lease(60));
        (asked.replay_id, asked.cycle) = (replay.clone(), cycle);
        asked
    };

    let begun = process(inbox.try_begin(replayed(0)).await.unwrap());
    assert_eq!((begun.attempt, begun.generation), (1, 2));
    let seen = inbox.get(&id).await;
    assert_eq!((seen.failures, seen.cycle, seen.replay_id.as_str()), (0, 1, replay.as_str()));
    let Next::DeadLetter(second) = inbox.try_fail(&id, 2, FailKind::DeadLetter).await.unwrap() else {
        panic!("not over")
    };
    assert_ne!(second.token, first);
    // The same replay again, and the original.
    assert_eq!(dead_letter(inbox.try_begin(replayed(1)).await.unwrap()).token, second.token);
    assert_eq!(dead_letter(inbox.begin(&id, lease(60)).await).token, second.token);

    let begun = process(inbox.try_begin(replayed(2)).await.unwrap());

    assert_eq!((begun.attempt, begun.generation, inbox.get(&id).await.cycle), (1, 3, 2));
    scene.end(0).await;
}

#[tokio::test]
async fn what_is_processed_is_never_begun_anew() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let begun = inbox.process(&id, lease(60)).await;
    inbox.try_complete(&id, begun.generation).await.unwrap();
    let mut asked = delivery(&id, lease(60));
    (asked.replay_id, asked.cycle) = (Uuid::now_v7().to_string(), 7);

    let answer = inbox.try_begin(asked).await.unwrap();

    assert!(matches!(answer, Outcome::Duplicate(_)), "{answer:?}");
    scene.end(0).await;
}
