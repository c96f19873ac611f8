//! The inbox's types as the contract says them.

use std::time::Duration;

use holdfast_proto::v1;
use time::OffsetDateTime;

use super::timestamp;
use crate::inbox::{Cause, Death, Ended, Key, Row};

pub(super) fn duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

pub(super) fn duplicate(at: OffsetDateTime) -> v1::Duplicate {
    v1::Duplicate { processed_at: Some(timestamp(at)) }
}

pub(super) fn dead_letter(death: &Death) -> v1::DeadLetter {
    let cause = match death.cause {
        Cause::Failures => v1::DeadLetterCause::Failures,
        Cause::LostStarts => v1::DeadLetterCause::LostStarts,
        Cause::Asked => v1::DeadLetterCause::Asked,
    };
    v1::DeadLetter { token: death.token.to_string(), cause: cause.into(), already_surfaced: death.surfaced }
}

/// Its one state, and what it waits for, in words.
fn state(row: &Row) -> (v1::ConsumptionState, &'static str) {
    use v1::ConsumptionState as State;
    if row.processed_at.is_some() {
        return (
            State::Processed,
            "Its effect is there, once and for all; further deliveries are duplicates.",
        );
    }
    if row.dead_lettered_at.is_some() {
        return (
            State::DeadLettered,
            "It was published to the dead-letter exchange; a replay or republish begins anew.",
        );
    }
    if row.cause.is_some() {
        let why =
            "Its attempts are used up; the next delivery is told to publish it to the dead-letter exchange.";
        return (State::ToDeadLetter, why);
    }
    if row.ticket.is_some() {
        let why = "A consumer's transaction is open, prepared, or ended a moment ago; it is processed if that commits.";
        return (State::Begun, why);
    }
    if row.remaining.is_some_and(|left| left > 0.0) {
        return (State::Begun, "A consumer has it under a lease.");
    }
    let why = match row.ended {
        _ if row.remaining.is_some() => {
            "The lease of its last start has run out, which the next delivery counts; it waits for that."
        }
        Some(Ended::Failed) => "Its last start failed; it waits for its next delivery.",
        Some(Ended::GivenBack) => "Its last start was given back; it waits for its next delivery.",
        Some(Ended::RolledBack | Ended::Lapsed) => {
            "Its last start ended in nothing; it waits for its next delivery."
        }
        None => "It waits for its next delivery.",
    };
    (State::Waiting, why)
}

pub(super) fn described(service: &str, key: &Key, row: Row) -> v1::Consumption {
    let (state, why) = state(&row);
    let token = row.death(key).map(|death| death.token.to_string()).unwrap_or_default();
    v1::Consumption {
        service: service.to_owned(),
        consumer_queue: key.queue.clone(),
        envelope_id: key.envelope_id.to_string(),
        source_service: row.source_service,
        event_type: row.event_type,
        state: state.into(),
        why: why.to_owned(),
        generation: row.generation,
        failures: row.failures,
        lost_starts: row.lost_starts,
        cycle: row.cycle,
        replay_id: row.replay_id.map(|id| id.to_string()).unwrap_or_default(),
        last_error: row.last_error.unwrap_or_default(),
        redelivered: row.redelivered,
        received_at: Some(timestamp(row.received_at)),
        begun_at: row.begun_at.map(timestamp),
        lease_until: row.lease_until.map(timestamp),
        processed_at: row.processed_at.map(timestamp),
        dead_lettered_at: row.dead_lettered_at.map(timestamp),
        token,
    }
}
