//! What to do about a message, by the row that is there. Pure: the tables of the RPCs' comments, line by line.
//!
//! `verdicts` must hold the row's ticket, if it has one, and the request's.

use std::time::Duration;

use holdfast_proto::consumption::{LEASE_RETRY, MOST_FAILURES, MOST_LOST_STARTS, OPEN_RETRY};

use super::sql::{After, Row};
use super::{Begun, Binding, Cause, Death, Delivery, Ended, FailKind, Key, Refused, Token};
use crate::tickets::Verdicts;

/// What came of a decision.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// Nothing is written.
    Say(T),
    /// This is written, and then said.
    Write(Box<After>, T),
    /// This is written, and then it is refused.
    WriteAndRefuse(Box<After>, Refused),
}

/// What a delivery is answered with, once what is written is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Process { attempt: i32, generation: i64 },
    Duplicate,
    InProgress(Duration),
    DeadLetter { cause: Cause, surfaced: bool },
}

impl Row {
    /// The state as it is.
    fn as_is(&self) -> After {
        After {
            begins: false,
            ticket: None,
            lease: None,
            generation: self.generation,
            ended: self.ended,
            failures: self.failures,
            lost_starts: self.lost_starts,
            cause: self.cause,
            processed: false,
            anew: false,
            cycle: self.cycle,
            replay_id: self.replay_id,
            redelivered: self.redelivered,
            last_error: self.last_error.clone(),
        }
    }

    fn processed(&self) -> Box<After> {
        Box::new(After { processed: true, ended: None, cause: None, ..self.as_is() })
    }

    /// A start that ended in nothing, counted.
    fn lost(&self, ended: Ended) -> After {
        let lost_starts = self.lost_starts.saturating_add(1);
        let over = lost_starts >= MOST_LOST_STARTS;
        After { ended: Some(ended), lost_starts, cause: over.then_some(Cause::LostStarts), ..self.as_is() }
    }

    /// Its death, if its series is over.
    pub fn death(&self, key: &Key) -> Option<Death> {
        let cause = self.cause?;
        let token = Token { key: key.clone(), epoch: self.epoch };
        Some(Death { token, cause, surfaced: self.dead_lettered_at.is_some() })
    }
}

impl Answer {
    /// With what is known now.
    pub(super) fn told(
        self,
        key: &Key,
        epoch: i64,
        lease_until: Option<time::OffsetDateTime>,
        processed_at: Option<time::OffsetDateTime>,
    ) -> Option<Begun> {
        Some(match self {
            Self::Process { attempt, generation } => Begun::Process { attempt, generation, lease_until },
            Self::Duplicate => Begun::Duplicate(processed_at?),
            Self::InProgress(after) => Begun::InProgress(after),
            Self::DeadLetter { cause, surfaced } => {
                Begun::DeadLetter(Death { token: Token { key: key.clone(), epoch }, cause, surfaced })
            }
        })
    }
}

/// BeginConsume of a message that has a row.
pub(super) fn begin(row: &Row, delivery: &Delivery, verdicts: &Verdicts) -> Result<Step<Answer>, Refused> {
    if row.processed_at.is_some() {
        return Ok(Step::Say(Answer::Duplicate));
    }
    let mine = match delivery.binding {
        Binding::Ticket(ticket) => Some(ticket),
        Binding::Lease { .. } => None,
    };
    let again =
        Answer::Process { attempt: attempt(row.failures, row.lost_starts), generation: row.generation };
    let rest = match row.ticket {
        Some(ticket) if verdicts.committed.contains(&ticket) => {
            return Ok(Step::Write(row.processed(), Answer::Duplicate));
        }
        Some(ticket) if verdicts.rolled_back.contains(&ticket) => {
            let lost = row.lost(Ended::RolledBack);
            if row.ticket == mine {
                return Ok(Step::WriteAndRefuse(Box::new(lost), Refused::TicketRolledBack));
            }
            lost
        }
        Some(_) if row.ticket == mine => return Ok(Step::Say(again)),
        Some(_) => return Ok(Step::Say(Answer::InProgress(OPEN_RETRY))),
        None => match (row.remaining, delivery.binding) {
            (None, _) => row.as_is(),
            (Some(_), Binding::Lease { token, duration }) if row.lease_token == Some(token) => {
                let lease = Some((token, duration));
                return Ok(Step::Write(Box::new(After { lease, ..row.as_is() }), again));
            }
            (Some(left), _) if left > 0.0 => {
                let left = Duration::try_from_secs_f64(left).unwrap_or(LEASE_RETRY).min(LEASE_RETRY);
                return Ok(Step::Say(Answer::InProgress(left)));
            }
            (Some(_), _) => row.lost(Ended::Lapsed),
        },
    };
    at_rest(row, rest, delivery, mine, verdicts)
}

/// Nobody has it in hand. `rest`: the state, with the last start's end counted.
fn at_rest(
    row: &Row,
    rest: After,
    delivery: &Delivery,
    mine: Option<i64>,
    verdicts: &Verdicts,
) -> Result<Step<Answer>, Refused> {
    let newer = delivery.cycle > row.cycle || delivery.replay_id > row.replay_id;
    let (anew, counts) = match rest.cause {
        Some(cause) if !newer => {
            let answer = Answer::DeadLetter { cause, surfaced: row.dead_lettered_at.is_some() };
            let counted = row.ticket.is_some() || row.lease_until.is_some();
            return Ok(if counted { Step::Write(Box::new(rest), answer) } else { Step::Say(answer) });
        }
        Some(_) => (true, (0, 0)),
        None => (false, (rest.failures, rest.lost_starts)),
    };
    if mine.is_some_and(|ticket| !verdicts.open.contains(&ticket)) {
        return Err(Refused::TicketNotOpen);
    }
    let (failures, lost_starts) = counts;
    let generation = row.generation.saturating_add(1);
    let (ticket, lease) = match delivery.binding {
        Binding::Ticket(ticket) => (Some(ticket), None),
        Binding::Lease { token, duration } => (None, Some((token, duration))),
    };
    let cycle =
        if anew { row.cycle.saturating_add(1).max(delivery.cycle) } else { row.cycle.max(delivery.cycle) };
    let after = After {
        begins: true,
        ticket,
        lease,
        generation,
        ended: None,
        failures,
        lost_starts,
        cause: None,
        processed: false,
        anew,
        cycle,
        // None is older than any.
        replay_id: row.replay_id.max(delivery.replay_id),
        redelivered: delivery.redelivered,
        last_error: rest.last_error,
    };
    let attempt = attempt(failures, lost_starts);
    Ok(Step::Write(Box::new(after), Answer::Process { attempt, generation }))
}

fn attempt(failures: i32, lost_starts: i32) -> i32 {
    failures.saturating_add(lost_starts).saturating_add(1)
}

/// Whether a completion had been marked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before(pub bool);

/// CompleteConsume.
pub(super) fn complete(row: &Row, generation: i64, verdicts: &Verdicts) -> Result<Step<Before>, Refused> {
    if row.generation != generation {
        return Err(Refused::Stale);
    }
    if row.processed_at.is_some() {
        return Ok(Step::Say(Before(true)));
    }
    match row.ticket {
        Some(ticket) if verdicts.committed.contains(&ticket) => {
            return Ok(Step::Write(row.processed(), Before(false)));
        }
        Some(ticket) if verdicts.rolled_back.contains(&ticket) => {
            return Ok(Step::WriteAndRefuse(Box::new(row.lost(Ended::RolledBack)), Refused::Stale));
        }
        Some(_) => return Err(Refused::Open),
        None => {}
    }
    // A lease that ran out, whether that was counted or not: he was late, but nobody has begun since.
    let late = row.ended == Some(Ended::Lapsed) && row.dead_lettered_at.is_none();
    if row.lease_until.is_some() || late {
        return Ok(Step::Write(row.processed(), Before(false)));
    }
    Err(Refused::Stale)
}

/// What comes after a failure, once what is written is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Retry(i32),
    DeadLetter { cause: Cause, surfaced: bool },
    Duplicate,
}

/// FailConsume.
pub(super) fn fail(
    row: &Row,
    generation: i64,
    kind: FailKind,
    error: &str,
    verdicts: &Verdicts,
) -> Result<Step<Then>, Refused> {
    if row.processed_at.is_some() {
        return Ok(Step::Say(Then::Duplicate));
    }
    if let Some(ticket) = row.ticket
        && verdicts.committed.contains(&ticket)
    {
        return Ok(Step::Write(row.processed(), Then::Duplicate));
    }
    if row.generation != generation {
        return Err(Refused::Stale);
    }
    if let Some(ticket) = row.ticket
        && !verdicts.rolled_back.contains(&ticket)
    {
        return Err(Refused::Open);
    }
    let begun = row.ticket.is_some() || row.lease_until.is_some();
    let counted = if begun { 0 } else { 1 };
    match row.ended {
        // Of an earlier start, or of none.
        _ if begun => {}
        // Was counted otherwise, before this word of it came. What went out is out.
        Some(Ended::RolledBack | Ended::Lapsed) if row.dead_lettered_at.is_none() => {}
        None => return Err(Refused::Stale),
        Some(_) => return Ok(Step::Say(then(row.cause, row.failures, row.dead_lettered_at.is_some()))),
    }
    let lost_starts = row.lost_starts.saturating_sub(counted).max(0);
    let (ended, failures) = match kind {
        FailKind::GivenBack => (Ended::GivenBack, row.failures),
        FailKind::Error | FailKind::DeadLetter => (Ended::Failed, row.failures.saturating_add(1)),
    };
    let cause = match kind {
        FailKind::DeadLetter => Some(Cause::Asked),
        FailKind::Error if failures >= MOST_FAILURES => Some(Cause::Failures),
        FailKind::Error | FailKind::GivenBack => None,
    };
    let last_error = if error.is_empty() { row.last_error.clone() } else { Some(error.to_owned()) };
    let after = After { ended: Some(ended), failures, lost_starts, cause, last_error, ..row.as_is() };
    Ok(Step::Write(Box::new(after), then(cause, failures, false)))
}

fn then(cause: Option<Cause>, failures: i32, surfaced: bool) -> Then {
    cause.map_or(Then::Retry(failures), |cause| Then::DeadLetter { cause, surfaced })
}

#[cfg(test)]
mod tests;
