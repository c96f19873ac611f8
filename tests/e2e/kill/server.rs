//! Server, `kill -9`, at every step; the other replica goes on (design, section 15, invariants 1, 2 and 4; section 3,
//! "a stage commits before it is answered"; section 4, leases and fenced stamps).
//!
//! An event comes twice only where the design allows it: published by a server that died before it had stamped.

use std::ops::RangeInclusive;

use holdfast_tests::{client::keyed, wait::LONG};

use super::{
    stand::{Setup, Stand},
    steps::{Companion, Play, Step, TYPE},
};

const ONCE: RangeInclusive<usize> = 1..=1;
const AGAIN: RangeInclusive<usize> = 2..=2;
const MAYBE_AGAIN: RangeInclusive<usize> = 1..=2;

/// Kills the front when the two events of a transaction are at `step`, and says how often each may come.
/// `answers`: what the repeated stage may be told, where the kill left it unanswered.
async fn killed(step: Step, answers: &[&str], comes: [RangeInclusive<usize>; 2]) {
    let mut stand = Stand::start(Setup::shared(true)).await;
    let mut late = Companion::stage(&stand, stand.place(), "k").await;
    let mut doomed = Companion::stage(&stand, stand.place(), "k").await;
    let mut play = Play::freeze(&mut stand, 0, step, "k").await;

    stand.front.kill9().await;
    stand.proxy.cut().await;
    stand.thaw().await;
    stand.standby.sigcont();

    if step <= Step::StageCommits {
        play.caller.answer().await.unwrap_err();
        let answer = play.stage_again(&stand, 0).await;
        assert!(answers.contains(&answer.as_str()), "{answer}");
    }
    if step <= Step::Staged {
        play.caller.commit().await;
    }
    if step == Step::CallerCommits {
        play.caller.answer().await.unwrap();
    }
    late.caller.commit().await;
    doomed.caller.kill9().await;
    let [one, two] = play.events.map(|id| id.to_string());
    let late = late.event.to_string();
    stand.consumer.wait_for_ids(&[&one, &two, &late], LONG).await;
    stand.place().is(&doomed.event.to_string(), "none").await;
    let marker = stand.commit(stand.place(), &stand.standby_client(stand.place()), &keyed(TYPE, "k")).await;
    stand.consumer.wait_for_ids(&[&marker], LONG).await;

    let census = stand.place().settled().await;
    assert_eq!((census.published, census.rows), (5, 5), "{census:?}");
    assert_eq!((stand.deliveries(doomed.event), census.gone["rolled_back"]), (0, 1), "{census:?}");
    for (id, range) in [&one, &two].into_iter().zip(comes) {
        assert!(range.contains(&stand.deliveries(id)), "{step:?}: {id} came {} times", stand.deliveries(id));
    }
    for id in [&play.before, &late, &marker] {
        assert_eq!(stand.deliveries(id), 1);
    }
    stand.first_came_in_order(&[late, marker.clone()]);
    stand.first_came_in_order(&[play.before, one, two, marker]);
    stand.end().await;
}

#[tokio::test]
async fn a_server_killed_while_it_stages_has_staged_at_most_once_and_the_call_is_repeated_elsewhere() {
    // The statement commits by itself: PostgreSQL ends it without the server, now or after the repeated call's.
    killed(Step::StageRuns, &["OUTCOME_STAGED", "OUTCOME_DUPLICATE"], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_while_its_stage_commits_has_staged_and_the_repeated_call_is_a_duplicate() {
    killed(Step::StageCommits, &["OUTCOME_DUPLICATE"], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_after_the_stage_is_not_missed_at_the_callers_commit() {
    killed(Step::Staged, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_while_the_caller_commits_has_no_part_in_it() {
    killed(Step::CallerCommits, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_after_the_callers_commit_leaves_the_event_to_the_other() {
    killed(Step::Committed, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_while_it_claims_under_the_drain_lock_leaves_lock_and_event_to_the_other() {
    killed(Step::ClaimRuns, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_while_its_claim_commits_leaves_a_claim_that_heals() {
    killed(Step::ClaimCommits, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_after_the_claim_leaves_a_claim_that_heals() {
    killed(Step::Claimed, &[], [ONCE, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_between_publish_and_confirm_repeats_that_event_alone() {
    killed(Step::Published, &[], [AGAIN, ONCE]).await;
}

#[tokio::test]
async fn a_server_killed_between_confirm_and_stamp_repeats_the_event() {
    killed(Step::StampRuns, &[], [AGAIN, MAYBE_AGAIN]).await;
}

#[tokio::test]
async fn a_server_killed_while_its_stamp_commits_repeats_nothing_that_it_stamped() {
    killed(Step::StampCommits, &[], [ONCE, MAYBE_AGAIN]).await;
}
