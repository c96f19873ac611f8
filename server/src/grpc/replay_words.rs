//! The words of replays: what is asked for, judged, and what is answered.

use std::collections::HashMap;

use holdfast_proto::envelope::Violations;
use holdfast_proto::v1;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Failure, timestamp};
use crate::jobs::State;
use crate::outbox::replay::{Pace, Replay, Selection};
use crate::{inbox, lookup};

/// Events a second, if nobody says otherwise.
const RATE: i32 = 1_000;
const MOST_RATE: i32 = 10_000;
/// The share of failures above which a replay pauses itself, if nobody says otherwise.
const FAILURES: f64 = 0.1;
/// Most bytes of a type or an ordering key.
const MOST_TEXT: usize = 1_024;

/// What is asked for.
pub(super) enum Wanted {
    Plan(Selection, Pace),
    RunNow(Selection, Pace),
    RunPlan { id: Uuid, max_rate: Option<i32>, ramp: bool },
}

pub(super) fn uuid(field: &str, text: &str, violations: &mut Violations) -> Uuid {
    Uuid::try_parse(text).unwrap_or_else(|_| {
        violations.push(field, "must be a UUID");
        Uuid::nil()
    })
}

/// A time that a calendar has; unset is never "everything".
fn time(
    field: &str,
    at: Option<&prost_types::Timestamp>,
    violations: &mut Violations,
) -> Option<OffsetDateTime> {
    let Some(at) = at else {
        violations.push(field, "is required");
        return None;
    };
    let whole = OffsetDateTime::from_unix_timestamp(at.seconds).ok();
    let nanos = u32::try_from(at.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let time = whole
        .zip(nanos)
        .and_then(|(whole, nanos)| whole.checked_add(time::Duration::nanoseconds(i64::from(nanos))))
        // What the database's calendar has, too, and an RFC 3339 text.
        .filter(|time| (1970..=9999).contains(&time.year()));
    if time.is_none() {
        violations.push(field, "must be a time from 1970 to 9999");
    }
    time
}

pub(super) fn wanted(request: &v1::ReplayRequest, violations: &mut Violations) -> Option<Wanted> {
    if let Some(rate) = request.max_rate
        && !(1..=MOST_RATE).contains(&rate)
    {
        violations.push("max_rate", format!("must be 1 to {MOST_RATE}"));
    }
    if !request.plan_id.is_empty() {
        let id = uuid("plan_id", &request.plan_id, violations);
        for (field, given) in [
            ("from", request.from.is_some()),
            ("to", request.to.is_some()),
            ("event_type", !request.event_type.is_empty()),
            ("ordering_key", request.ordering_key.is_some()),
            ("dry_run", request.dry_run),
            ("max_failure_ratio", request.max_failure_ratio.is_some()),
        ] {
            if given {
                violations.push(field, "must be left out with plan_id: the plan has it");
            }
        }
        return Some(Wanted::RunPlan { id, max_rate: request.max_rate, ramp: request.ramp });
    }
    let from = time("from", request.from.as_ref(), violations);
    let to = time("to", request.to.as_ref(), violations);
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        violations.push("to", "must be after from");
    }
    for (field, text) in
        [("event_type", Some(&request.event_type)), ("ordering_key", request.ordering_key.as_ref())]
    {
        if text.is_some_and(|text| text.len() > MOST_TEXT || text.contains('\0')) {
            violations.push(field, format!("must be at most {MOST_TEXT} bytes without U+0000"));
        }
    }
    let max_failures = request.max_failure_ratio.unwrap_or(FAILURES);
    if !(max_failures > 0.0 && max_failures <= 1.0) {
        violations.push("max_failure_ratio", "must be above 0 and at most 1");
    }
    let selection = Selection {
        from: from?,
        to: to?,
        event_type: (!request.event_type.is_empty()).then(|| request.event_type.clone()),
        ordering_key: request.ordering_key.clone(),
    };
    let pace = Pace { max_rate: request.max_rate.unwrap_or(RATE), ramp: request.ramp, max_failures };
    Some(if request.dry_run { Wanted::Plan(selection, pace) } else { Wanted::RunNow(selection, pace) })
}

/// What is asked for, for the audit.
pub(super) fn asked(request: &v1::ReplayRequest) -> Value {
    let said = |at: Option<&prost_types::Timestamp>| at.map(ToString::to_string);
    let mut asked = json!({"dry_run": request.dry_run});
    if let Some(fields) = asked.as_object_mut() {
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("from", said(request.from.as_ref()).map(Value::from));
        put("to", said(request.to.as_ref()).map(Value::from));
        put("event_type", (!request.event_type.is_empty()).then(|| json!(request.event_type)));
        put("ordering_key", request.ordering_key.clone().map(Value::from));
        put("max_rate", request.max_rate.map(Value::from));
        put("ramp", request.ramp.then_some(json!(true)));
        put("max_failure_ratio", request.max_failure_ratio.map(Value::from));
        put("plan_id", (!request.plan_id.is_empty()).then(|| json!(request.plan_id)));
    }
    asked
}

pub(super) fn counts(replay: &Replay) -> Value {
    let job = &replay.job;
    json!({
        "replay_id": job.id.to_string(), "state": job.state.as_str(), "matched": job.matched, "done": job.done,
        "failed": job.failed, "expired": job.expired, "pruned": job.pruned,
        "not_published": replay.about.not_published,
    })
}

fn state(state: State) -> v1::ReplayState {
    match state {
        State::Planned => v1::ReplayState::Planned,
        State::Preparing => v1::ReplayState::Preparing,
        State::Running => v1::ReplayState::Running,
        State::Paused => v1::ReplayState::Paused,
        State::Done => v1::ReplayState::Done,
        State::Cancelled => v1::ReplayState::Cancelled,
    }
}

pub(super) fn described(service: &str, replay: Replay) -> v1::Replay {
    let Replay { job, about } = replay;
    let reason = match (&job.reason, job.expired_plan) {
        (_, true) => "the plan's hour is over".to_owned(),
        (reason, false) => reason.clone().unwrap_or_default(),
    };
    v1::Replay {
        service: service.to_owned(),
        replay_id: job.id.to_string(),
        state: state(job.state).into(),
        reason,
        requested_by: job.requested_by,
        from: Some(timestamp(about.selection.from)),
        to: Some(timestamp(about.selection.to)),
        event_type: about.selection.event_type.unwrap_or_default(),
        ordering_key: about.selection.ordering_key,
        max_rate: job.max_rate,
        ramp: job.ramp.is_some(),
        max_failure_ratio: job.max_failures,
        matched: job.matched,
        done: job.done,
        failed: job.failed,
        expired: job.expired,
        pruned: job.pruned,
        not_published: about.not_published,
        in_flight: job.in_flight,
        created_at: Some(timestamp(job.created_at)),
        expires_at: job.expires_at.map(timestamp),
        started_at: job.started_at.map(timestamp),
        ended_at: job.ended_at.map(timestamp),
        upper_seq: about.upper_seq,
    }
}

pub(super) fn not_asked(service: &str, consumer_queue: String, why: String) -> v1::ReplayConsumer {
    v1::ReplayConsumer {
        service: service.to_owned(),
        consumer_queue,
        not_asked: why,
        ..v1::ReplayConsumer::default()
    }
}

/// What the inboxes remember of these events. One that cannot be asked says so, and fails nothing.
pub(super) async fn consumers(
    inboxes: Vec<(String, inbox::Desk)>,
    events: &[Uuid],
) -> Vec<v1::ReplayConsumer> {
    let asked = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let queues: HashMap<String, Vec<String>> =
        inboxes.iter().map(|(name, desk)| (name.clone(), desk.queues())).collect();
    let mut all = Vec::new();
    for (service, memory) in lookup::memories(inboxes, events).await {
        match memory {
            Ok(rows) => {
                all.extend(rows.into_iter().map(|(consumer_queue, processed, seen)| v1::ReplayConsumer {
                    service: service.clone(),
                    consumer_queue,
                    asked,
                    suppressed: processed,
                    would_run: seen - processed,
                    never_seen: asked - seen,
                    not_asked: String::new(),
                }))
            }
            Err(error) => {
                let why = Failure::Read(error).said_of(&service).1;
                let queues = queues.get(&service).cloned().unwrap_or_default();
                all.extend(queues.into_iter().map(|queue| not_asked(&service, queue, why.clone())));
            }
        }
    }
    all
}

/// What changes while it goes on.
pub(super) fn moving(replay: &v1::Replay) -> (i32, i64, i64, i64, i64, i32) {
    (replay.state, replay.done, replay.failed, replay.expired, replay.pruned, replay.in_flight)
}
