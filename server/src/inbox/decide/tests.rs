#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use time::OffsetDateTime;
use uuid::Uuid;

use super::*;

const MINE: i64 = 1;
const OTHER: i64 = 2;
const HOUR: Duration = Duration::from_secs(3_600);

/// A row that waits after `generation` starts.
fn waiting(generation: i64) -> Row {
    Row {
        source_service: String::new(),
        event_type: String::new(),
        received_at: OffsetDateTime::UNIX_EPOCH,
        epoch: 0,
        processed_at: None,
        ticket: None,
        lease_token: None,
        lease_until: None,
        remaining: None,
        generation,
        begun_at: Some(OffsetDateTime::UNIX_EPOCH),
        ended: Some(Ended::Failed),
        failures: 0,
        lost_starts: 0,
        cause: None,
        dead_lettered_at: None,
        cycle: 0,
        replay_id: None,
        redelivered: false,
        last_error: None,
        looked_at: OffsetDateTime::UNIX_EPOCH,
    }
}

fn processed() -> Row {
    Row { processed_at: Some(OffsetDateTime::UNIX_EPOCH), ended: None, ..waiting(1) }
}

fn under(ticket: i64) -> Row {
    Row { ticket: Some(ticket), ended: None, ..waiting(1) }
}

fn leased(holder: Uuid, remaining: f64) -> Row {
    Row {
        lease_token: Some(holder),
        lease_until: Some(OffsetDateTime::UNIX_EPOCH),
        remaining: Some(remaining),
        ended: None,
        ..waiting(1)
    }
}

fn over(cause: Cause) -> Row {
    Row { cause: Some(cause), failures: 5, lost_starts: 1, ..waiting(6) }
}

fn dead() -> Row {
    Row { dead_lettered_at: Some(OffsetDateTime::UNIX_EPOCH), ..over(Cause::Failures) }
}

fn delivery(binding: Binding) -> Delivery {
    Delivery {
        key: Key { envelope_id: Uuid::nil(), queue: "q".to_owned() },
        source_service: String::new(),
        event_type: String::new(),
        binding,
        redelivered: false,
        replay_id: None,
        cycle: 0,
    }
}

fn by_ticket() -> Delivery {
    delivery(Binding::Ticket(MINE))
}

fn by_lease(token: Uuid) -> Delivery {
    delivery(Binding::Lease { token, duration: HOUR })
}

fn open(tickets: &[i64]) -> Verdicts {
    Verdicts { open: tickets.to_vec(), ..Verdicts::default() }
}

fn committed(ticket: i64) -> Verdicts {
    Verdicts { committed: vec![ticket], ..open(&[MINE]) }
}

fn rolled_back(ticket: i64) -> Verdicts {
    Verdicts { rolled_back: vec![ticket], ..open(if ticket == MINE { &[] } else { &[MINE] }) }
}

fn says<T>(step: Step<T>) -> T {
    match step {
        Step::Say(said) => said,
        other => panic!("{:?}", other.written()),
    }
}

fn writes<T>(step: Step<T>) -> (After, T) {
    match step {
        Step::Write(after, said) => (*after, said),
        _ => panic!("nothing is written"),
    }
}

impl<T> Step<T> {
    fn written(&self) -> Option<&After> {
        match self {
            Self::Say(_) => None,
            Self::Write(after, _) | Self::WriteAndRefuse(after, _) => Some(after),
        }
    }
}

#[test]
fn what_is_processed_is_a_duplicate_whoever_asks_and_however_new_the_delivery_is() {
    let mut newest = by_ticket();
    (newest.replay_id, newest.cycle) = (Some(Uuid::max()), 9);
    for asked in [by_ticket(), by_lease(Uuid::nil()), newest] {
        assert_eq!(says(begin(&processed(), &asked, &open(&[])).unwrap()), Answer::Duplicate);
    }
}

#[test]
fn a_ticket_that_committed_is_marked_before_anybody_is_told() {
    for asked in [by_ticket(), by_lease(Uuid::nil())] {
        let (after, said) = writes(begin(&under(OTHER), &asked, &committed(OTHER)).unwrap());
        assert_eq!(said, Answer::Duplicate);
        assert!(after.processed && after.ticket.is_none(), "{after:?}");
    }
}

#[test]
fn the_same_ticket_gets_its_start_again_while_it_is_open_and_not_after_it_was_rolled_back() {
    let row = Row { failures: 2, lost_starts: 1, generation: 7, ..under(MINE) };
    let again = says(begin(&row, &by_ticket(), &open(&[MINE])).unwrap());
    assert_eq!(again, Answer::Process { attempt: 4, generation: 7 });
    match begin(&row, &by_ticket(), &rolled_back(MINE)).unwrap() {
        Step::WriteAndRefuse(after, Refused::TicketRolledBack) => assert_eq!(after.lost_starts, 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_open_ticket_is_in_progress_and_never_a_duplicate() {
    for asked in [by_ticket(), by_lease(Uuid::nil())] {
        let said = says(begin(&under(OTHER), &asked, &open(&[MINE, OTHER])).unwrap());
        assert_eq!(said, Answer::InProgress(OPEN_RETRY));
    }
}

#[test]
fn a_rolled_back_ticket_is_counted_and_taken_over() {
    let (after, said) = writes(begin(&under(OTHER), &by_ticket(), &rolled_back(OTHER)).unwrap());
    assert_eq!(said, Answer::Process { attempt: 2, generation: 2 });
    assert_eq!((after.lost_starts, after.ticket, after.begins), (1, Some(MINE), true));
}

#[test]
fn the_third_start_that_ended_in_nothing_ends_the_series() {
    let row = Row { lost_starts: 2, ..under(OTHER) };
    let (after, said) = writes(begin(&row, &by_ticket(), &rolled_back(OTHER)).unwrap());
    assert_eq!(said, Answer::DeadLetter { cause: Cause::LostStarts, surfaced: false });
    assert_eq!((after.cause, after.begins, after.ticket), (Some(Cause::LostStarts), false, None));
}

#[test]
fn a_lease_that_runs_is_in_progress_for_others_and_prolonged_for_its_holder() {
    let (holder, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let row = leased(holder, 2.0);
    let said = says(begin(&row, &by_lease(other), &open(&[])).unwrap());
    assert_eq!(said, Answer::InProgress(Duration::from_secs(2)));
    assert_eq!(
        says(begin(&leased(holder, 9_000.0), &by_ticket(), &open(&[MINE])).unwrap()),
        Answer::InProgress(LEASE_RETRY)
    );
    for row in [row, leased(holder, -2.0)] {
        let (after, said) = writes(begin(&row, &by_lease(holder), &open(&[])).unwrap());
        assert_eq!(said, Answer::Process { attempt: 1, generation: 1 });
        assert_eq!((after.lease, after.begins), (Some((holder, HOUR)), false));
    }
}

#[test]
fn a_lease_that_ran_out_is_counted_and_taken_over() {
    let row = leased(Uuid::from_u128(1), 0.0);
    let (after, said) = writes(begin(&row, &by_lease(Uuid::from_u128(2)), &open(&[])).unwrap());
    assert_eq!(said, Answer::Process { attempt: 2, generation: 2 });
    assert_eq!((after.lost_starts, after.begins), (1, true));
}

#[test]
fn nothing_begins_with_a_ticket_that_is_not_open() {
    for row in [waiting(1), dead()] {
        let mut asked = by_ticket();
        asked.cycle = 1;
        assert!(matches!(begin(&row, &asked, &open(&[])), Err(Refused::TicketNotOpen)));
    }
}

#[test]
fn a_series_that_is_over_is_a_dead_letter_until_something_newer_comes() {
    for (row, surfaced) in [(over(Cause::Failures), false), (dead(), true)] {
        let said = says(begin(&row, &by_ticket(), &open(&[MINE])).unwrap());
        assert_eq!(said, Answer::DeadLetter { cause: Cause::Failures, surfaced });

        let (mut replayed, mut put_back) = (by_ticket(), by_ticket());
        replayed.replay_id = Some(Uuid::from_u128(1));
        put_back.cycle = 3;
        for (asked, cycle) in [(replayed, 1), (put_back, 3)] {
            let (after, said) = writes(begin(&row, &asked, &open(&[MINE])).unwrap());
            assert_eq!(said, Answer::Process { attempt: 1, generation: 7 });
            assert_eq!((after.failures, after.lost_starts, after.cause), (0, 0, None));
            assert_eq!((after.anew, after.cycle, after.replay_id), (true, cycle, asked.replay_id));
        }
    }
}

#[test]
fn the_same_replay_or_cycle_again_is_nothing_newer() {
    let row = Row { replay_id: Some(Uuid::from_u128(2)), cycle: 1, ..dead() };
    for (replay_id, cycle) in
        [(None, 0), (None, 1), (Some(Uuid::from_u128(2)), 1), (Some(Uuid::from_u128(1)), 0)]
    {
        let mut asked = by_ticket();
        (asked.replay_id, asked.cycle) = (replay_id, cycle);
        let said = says(begin(&row, &asked, &open(&[MINE])).unwrap());
        assert!(matches!(said, Answer::DeadLetter { .. }), "{replay_id:?} {cycle}");
    }
}

#[test]
fn a_start_remembers_the_newest_replay_so_that_its_redelivery_begins_no_series() {
    let mut asked = by_ticket();
    (asked.replay_id, asked.cycle) = (Some(Uuid::from_u128(5)), 2);
    let row = Row { failures: 3, ..waiting(3) };
    let (after, _) = writes(begin(&row, &asked, &open(&[MINE])).unwrap());
    assert_eq!((after.anew, after.failures), (false, 3), "a series that goes on is not begun anew");
    assert_eq!((after.replay_id, after.cycle), (asked.replay_id, 2));
    let later = Row { replay_id: Some(Uuid::from_u128(9)), cycle: 4, ..row };
    let (after, _) = writes(begin(&later, &asked, &open(&[MINE])).unwrap());
    assert_eq!(
        (after.replay_id, after.cycle),
        (Some(Uuid::from_u128(9)), 4),
        "an older one takes nothing back"
    );
}

#[test]
fn a_completion_is_fenced_by_its_generation() {
    for row in [processed(), under(OTHER), leased(Uuid::nil(), 1.0), waiting(1), dead()] {
        for generation in [row.generation - 1, row.generation + 1] {
            assert!(matches!(complete(&row, generation, &open(&[])), Err(Refused::Stale)), "{row:?}");
        }
    }
    assert_eq!(says(complete(&processed(), 1, &open(&[])).unwrap()), Before(true));
}

#[test]
fn a_lease_is_completed_also_late_as_long_as_nobody_has_begun_since_and_no_letter_is_out() {
    let lapsed = Row { ended: Some(Ended::Lapsed), lost_starts: 1, ..waiting(1) };
    let condemned = Row { cause: Some(Cause::LostStarts), ..lapsed.clone() };
    for row in [leased(Uuid::nil(), 5.0), leased(Uuid::nil(), -5.0), lapsed, condemned.clone()] {
        let (after, said) = writes(complete(&row, 1, &open(&[])).unwrap());
        assert_eq!(said, Before(false));
        assert!(after.processed && after.cause.is_none() && after.lease.is_none());
    }
    let out = Row { dead_lettered_at: Some(OffsetDateTime::UNIX_EPOCH), ..condemned };
    let rolled_back = Row { ended: Some(Ended::RolledBack), ..waiting(1) };
    for row in [out, rolled_back, waiting(1)] {
        assert!(matches!(complete(&row, 1, &open(&[])), Err(Refused::Stale)), "{row:?}");
    }
}

#[test]
fn a_ticket_is_completed_by_its_commit_alone() {
    let (after, said) = writes(complete(&under(OTHER), 1, &committed(OTHER)).unwrap());
    assert!(after.processed && said == Before(false));
    assert!(matches!(complete(&under(OTHER), 1, &open(&[OTHER])), Err(Refused::Open)));
    let lost = complete(&under(OTHER), 1, &rolled_back(OTHER)).unwrap();
    assert!(matches!(lost, Step::WriteAndRefuse(_, Refused::Stale)), "{lost:?}");
}

fn failed(row: &Row, kind: FailKind, verdicts: &Verdicts) -> Result<Step<Then>, Refused> {
    fail(row, row.generation, kind, "no such order", verdicts)
}

#[test]
fn a_failure_of_what_was_processed_is_a_duplicate() {
    assert_eq!(says(failed(&processed(), FailKind::Error, &open(&[])).unwrap()), Then::Duplicate);
    let (after, said) = writes(failed(&under(OTHER), FailKind::DeadLetter, &committed(OTHER)).unwrap());
    assert!(after.processed && said == Then::Duplicate);
}

#[test]
fn an_error_is_counted_and_the_fifth_ends_the_series() {
    for row in [under(OTHER), leased(Uuid::nil(), 1.0)] {
        let (after, said) = writes(failed(&row, FailKind::Error, &rolled_back(OTHER)).unwrap());
        assert_eq!((said, after.failures, after.lost_starts), (Then::Retry(1), 1, 0));
        assert_eq!(after.last_error.as_deref(), Some("no such order"));
        let fifth = Row { failures: 4, ..row };
        let (after, said) = writes(failed(&fifth, FailKind::Error, &rolled_back(OTHER)).unwrap());
        assert_eq!(said, Then::DeadLetter { cause: Cause::Failures, surfaced: false });
        assert_eq!((after.failures, after.cause), (5, Some(Cause::Failures)));
    }
}

#[test]
fn what_is_given_back_is_not_counted_and_what_is_condemned_is_over_at_once() {
    let row = leased(Uuid::nil(), 1.0);
    let (after, said) = writes(failed(&row, FailKind::GivenBack, &open(&[])).unwrap());
    assert_eq!((said, after.failures, after.lost_starts), (Then::Retry(0), 0, 0));
    let (after, said) = writes(failed(&row, FailKind::DeadLetter, &open(&[])).unwrap());
    assert_eq!(said, Then::DeadLetter { cause: Cause::Asked, surfaced: false });
    assert_eq!((after.failures, after.cause), (1, Some(Cause::Asked)));
}

#[test]
fn a_ticket_that_is_open_cannot_fail() {
    assert!(matches!(failed(&under(OTHER), FailKind::Error, &open(&[OTHER])), Err(Refused::Open)));
}

#[test]
fn a_start_that_was_counted_as_lost_is_counted_as_the_failure_it_was() {
    for ended in [Ended::RolledBack, Ended::Lapsed] {
        let lost = Row { ended: Some(ended), lost_starts: 3, cause: Some(Cause::LostStarts), ..waiting(3) };
        let (after, said) = writes(failed(&lost, FailKind::Error, &open(&[])).unwrap());
        assert_eq!((said, after.failures, after.lost_starts), (Then::Retry(1), 1, 2));
        assert_eq!((after.cause, after.ended), (None, Some(Ended::Failed)));
    }
}

#[test]
fn a_failure_that_was_counted_is_not_counted_again() {
    for (row, expected) in [
        (Row { failures: 2, ..waiting(2) }, Then::Retry(2)),
        (Row { ended: Some(Ended::GivenBack), ..waiting(2) }, Then::Retry(0)),
        (over(Cause::Asked), Then::DeadLetter { cause: Cause::Asked, surfaced: false }),
        (dead(), Then::DeadLetter { cause: Cause::Failures, surfaced: true }),
        (
            Row { ended: Some(Ended::Lapsed), ..dead() },
            Then::DeadLetter { cause: Cause::Failures, surfaced: true },
        ),
    ] {
        assert_eq!(says(failed(&row, FailKind::Error, &open(&[])).unwrap()), expected, "{row:?}");
        assert!(matches!(fail(&row, 1, FailKind::Error, "", &open(&[])), Err(Refused::Stale)));
    }
}
