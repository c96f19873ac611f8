//! What operators ask for and how the answers are shown: conversions of `OutboxAdminService`, and nothing else.

use holdfast_proto::envelope::{self, Violations};
use holdfast_proto::v1;
use prost::Message;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::timestamp;
use crate::outbox::operator::{self, Done, Selection, Skipped, WhyNot};
use crate::outbox::pause::Pause;
use crate::outbox::pending::{self, Pending, Why};
use crate::outbox::{parked, unresolved};

/// Entries of a page whose size is left to us.
const PAGE: usize = 100;
/// Most events of a page.
pub(super) const MOST_EVENTS: usize = 500;
/// A page ends early once it holds this much, below the 4 MiB that clients take by default.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Most bytes of a reason.
const REASON_BYTES: usize = 1_024;
/// Most bytes of a type and of a key in a filter.
const TYPE_BYTES: usize = 255;
const KEY_BYTES: usize = 1_024;

/// Which page is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paging {
    pub(super) after: Option<i64>,
    pub(super) limit: usize,
}

pub(super) fn paging(size: i32, token: &str, most: usize, violations: &mut Violations) -> Paging {
    let limit = match usize::try_from(size) {
        Ok(0) => PAGE,
        Ok(size) if size <= most => size,
        _ => {
            violations.push("page_size", format!("must be 1 to {most}, or 0 for the default"));
            PAGE
        }
    };
    Paging { after: place("page_token", token, violations), limit }
}

/// A place that an answer ended at, handed back by the caller.
fn place(field: &str, token: &str, violations: &mut Violations) -> Option<i64> {
    if token.is_empty() {
        return None;
    }
    let place = token.parse().ok();
    if place.is_none() {
        violations.push(field, "is not one that this call has answered with");
    }
    place
}

fn text(field: &str, text: &str, most: usize, violations: &mut Violations) {
    if text.len() > most || text.contains('\0') {
        violations.push(field, format!("must be at most {most} bytes without U+0000"));
    }
}

pub(super) fn reason(reason: &str, violations: &mut Violations) {
    if reason.is_empty() || reason.len() > REASON_BYTES || reason.contains(char::is_control) {
        violations.push("reason", format!("must be 1 to {REASON_BYTES} bytes without control characters"));
    }
}

/// Type and key of a filter; what is not set asks for all.
fn parts(
    event_type: &str,
    ordering_key: Option<&String>,
    violations: &mut Violations,
) -> (Option<String>, Option<String>) {
    text("filter.event_type", event_type, TYPE_BYTES, violations);
    text("filter.ordering_key", ordering_key.map_or("", String::as_str), KEY_BYTES, violations);
    (Some(event_type.to_owned()).filter(|text| !text.is_empty()), ordering_key.cloned())
}

pub(super) fn parked_filter(filter: Option<&v1::EventFilter>, violations: &mut Violations) -> parked::Filter {
    let Some(v1::EventFilter { event_type, ordering_key, all }) = filter else {
        return parked::Filter::default();
    };
    let (event_type, ordering_key) = parts(event_type, ordering_key.as_ref(), violations);
    if *all && (event_type.is_some() || ordering_key.is_some()) {
        violations.push("filter.all", "must not be set beside a type or a key");
    }
    parked::Filter { event_type, ordering_key }
}

pub(super) fn pending_filter(
    filter: Option<&v1::PendingFilter>,
    violations: &mut Violations,
) -> pending::Filter {
    let Some(filter) = filter else { return pending::Filter::default() };
    let (event_type, ordering_key) = parts(&filter.event_type, filter.ordering_key.as_ref(), violations);
    let why = match v1::PendingWhy::try_from(filter.why) {
        Ok(why) => waits_for(why).map(|why| vec![why]),
        Err(_) => {
            violations.push("filter.why", "is none of PendingWhy");
            None
        }
    };
    pending::Filter { event_type, ordering_key, why }
}

/// To which events a verb is to be done: exactly one of both ways.
pub(super) fn selection(
    ids: &[String],
    filter: Option<&v1::EventFilter>,
    continue_token: &str,
    violations: &mut Violations,
) -> Selection {
    let after = place("continue_token", continue_token, violations);
    match (ids.is_empty(), filter) {
        (true, None) => violations.push("ids", "must name events, unless there is a `filter`"),
        (false, Some(_)) => violations.push("filter", "must not be set beside `ids`"),
        (false, None) if !continue_token.is_empty() => {
            violations.push("continue_token", "must not be set beside `ids`");
        }
        (true, Some(filter)) => {
            let wanted = parked_filter(Some(filter), violations);
            if !filter.all && wanted.event_type.is_none() && wanted.ordering_key.is_none() {
                violations.push("filter", "must name a type or a key, or say `all`");
            }
            return Selection::Filter(wanted, after);
        }
        (false, None) => {}
    }
    if ids.len() > operator::MOST {
        violations.push("ids", format!("are {}, the limit is {}", ids.len(), operator::MOST));
        return Selection::Ids(Vec::new());
    }
    let mut parsed = Vec::with_capacity(ids.len());
    for (at, id) in ids.iter().enumerate() {
        match envelope::parse_id(id) {
            Some(uuid) => parsed.push(uuid),
            None => violations.push(format!("ids[{at}]"), "must be a UUID in its hyphenated form"),
        }
    }
    Selection::Ids(parsed)
}

/// For the audit.
pub(super) fn filter_said(event_type: &str, ordering_key: Option<&String>) -> Map<String, Value> {
    let mut said = Map::new();
    if !event_type.is_empty() {
        said.insert("event_type".to_owned(), json!(event_type));
    }
    if let Some(key) = ordering_key {
        said.insert("ordering_key".to_owned(), json!(key));
    }
    said
}

/// For the audit: what a verb was asked for.
pub(super) fn asked(
    ids: &[String],
    filter: Option<&v1::EventFilter>,
    continue_token: &str,
    reason: Option<&str>,
) -> Value {
    let mut said = Map::new();
    if let Some(filter) = filter {
        let mut inner = filter_said(&filter.event_type, filter.ordering_key.as_ref());
        if filter.all {
            inner.insert("all".to_owned(), json!(true));
        }
        said.insert("filter".to_owned(), Value::Object(inner));
    }
    if !ids.is_empty() {
        said.insert("ids".to_owned(), json!(ids));
    }
    if !continue_token.is_empty() {
        said.insert("continue_token".to_owned(), json!(continue_token));
    }
    if let Some(reason) = reason {
        said.insert("reason".to_owned(), json!(reason));
    }
    Value::Object(said)
}

/// For the audit: what came of it.
/// For the audit; `stopped`: the reason of what kept it from its end.
pub(super) fn counts(done: &Done, stopped: Option<&str>) -> Value {
    let skipped: u64 = done.skipped.values().sum();
    let mut counts = json!({
        "matched": done.matched, "acted": done.acted, "skipped": skipped, "complete": done.next.is_none(),
    });
    if let Some(reason) = stopped {
        counts["stopped"] = json!(reason);
    }
    counts
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn optional(id: Option<Uuid>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

pub(super) fn described_done(done: Done) -> v1::ActedOn {
    let skipped: u64 = done.skipped.values().sum();
    v1::ActedOn {
        matched: count(done.matched),
        acted: count(done.acted),
        skipped: count(skipped),
        skipped_counts: done
            .skipped
            .iter()
            .map(|(why, events)| v1::SkippedCount { why: skip(*why).into(), events: count(*events) })
            .collect(),
        skipped_events_truncated: skipped > done.named.len() as u64,
        skipped_events: done
            .named
            .into_iter()
            .map(|Skipped { id, why, behind }| v1::SkippedEvent {
                id: id.to_string(),
                why: skip(why).into(),
                behind: optional(behind),
            })
            .collect(),
        complete: done.next.is_none(),
        continue_token: done.next.map(|next| next.to_string()).unwrap_or_default(),
    }
}

fn skip(why: WhyNot) -> v1::SkipWhy {
    match why {
        WhyNot::NotFound => v1::SkipWhy::NotFound,
        WhyNot::Busy => v1::SkipWhy::Busy,
        WhyNot::NotParked => v1::SkipWhy::NotParked,
        WhyNot::Unresolved => v1::SkipWhy::Unresolved,
        WhyNot::Held => v1::SkipWhy::Held,
        WhyNot::Parked => v1::SkipWhy::Parked,
        WhyNot::InFlight => v1::SkipWhy::InFlight,
        WhyNot::Behind => v1::SkipWhy::Behind,
        WhyNot::Ready => v1::SkipWhy::Ready,
        WhyNot::Published => v1::SkipWhy::Published,
    }
}

/// Both ways from one table.
const WHYS: [(Why, v1::PendingWhy); 10] = [
    (Why::Unresolved, v1::PendingWhy::Unresolved),
    (Why::Held, v1::PendingWhy::Held),
    (Why::Parked, v1::PendingWhy::Parked),
    (Why::InFlight, v1::PendingWhy::InFlight),
    (Why::Unroutable, v1::PendingWhy::Unroutable),
    (Why::BackingOff, v1::PendingWhy::BackingOff),
    (Why::Behind, v1::PendingWhy::Behind),
    (Why::Paused, v1::PendingWhy::Paused),
    (Why::Alone, v1::PendingWhy::Alone),
    (Why::Ready, v1::PendingWhy::Ready),
];

fn waits_for(why: v1::PendingWhy) -> Option<Why> {
    WHYS.into_iter().find(|(_, shown)| *shown == why).map(|(why, _)| why)
}

fn shown(why: Why) -> v1::PendingWhy {
    WHYS.into_iter().find(|(known, _)| *known == why).map(|(_, shown)| shown).unwrap_or_default()
}

pub(super) fn described_pause(pause: Pause) -> v1::DrainPause {
    v1::DrainPause { by: pause.by, since: Some(timestamp(pause.since)), reason: pause.reason }
}

/// Keeps a page below its bytes, at least one entry of it; tells whether something was cut.
fn cut<T: Message>(entries: &mut Vec<T>) -> bool {
    let mut sum = 0;
    let fits = entries.iter().take_while(|entry| {
        sum += entry.encoded_len();
        sum <= PAGE_BYTES
    });
    let fits = fits.count().max(1);
    let more = entries.len() > fits;
    entries.truncate(fits);
    more
}

fn token(next: Option<i64>) -> String {
    next.map(|next| next.to_string()).unwrap_or_default()
}

pub(super) fn described_pending(page: pending::Page, pause: Option<Pause>) -> v1::ListPendingResponse {
    let mut events: Vec<_> = page.events.into_iter().map(one_pending).collect();
    let next = if cut(&mut events) { events.last().map(|last| last.seq) } else { page.next };
    v1::ListPendingResponse { events, next_page_token: token(next), pause: pause.map(described_pause) }
}

fn one_pending(row: Pending) -> v1::PendingEvent {
    v1::PendingEvent {
        id: row.id.to_string(),
        seq: row.seq,
        r#type: row.event_type,
        ordering_key: row.ordering_key,
        created_at: row.created_at.map(timestamp),
        why: shown(row.why).into(),
        attempts: row.attempts,
        last_error: row.last_error,
        next_attempt_at: row.next_attempt_at.map(timestamp),
        ticket: row.ticket,
        hold: row.hold.map(|(operation_id, generation)| v1::Hold { operation_id, generation }),
        parked_at: row.parked_at.map(timestamp),
        parked_reason: row.parked_reason,
        claimed_at: row.claimed_at.map(timestamp),
        claimed_by: row.claimed_by,
        behind: optional(row.behind.filter(|_| row.why == Why::Behind)),
        alone: row.alone,
    }
}

pub(super) fn described_parked(page: parked::Page) -> v1::ListParkedResponse {
    let mut events: Vec<_> = page.events.into_iter().map(one_parked).collect();
    let next = if cut(&mut events) { events.last().map(|last| last.seq) } else { page.next };
    v1::ListParkedResponse { events, next_page_token: token(next) }
}

fn one_parked(row: parked::Parked) -> v1::ParkedEvent {
    v1::ParkedEvent {
        id: row.id.to_string(),
        seq: row.seq,
        r#type: row.event_type,
        ordering_key: row.ordering_key,
        created_at: row.created_at.map(timestamp),
        parked_at: row.parked_at.map(timestamp),
        reason: row.reason,
        attempts: row.attempts,
        lone_claims: row.lone_claims,
        behind: row.behind,
    }
}

pub(super) fn described_unresolved(page: unresolved::Page) -> v1::ListUnresolvedResponse {
    let tickets = page.tickets.into_iter().map(|one| {
        let mut shown = v1::UnresolvedTicket {
            ticket: one.ticket,
            holder: v1::TicketHolder::Nobody.into(),
            events: one.events,
            oldest_created_at: one.oldest.map(timestamp),
            ..v1::UnresolvedTicket::default()
        };
        if let Some(holder) = one.holder {
            let kind = if holder.pid == 0 { v1::TicketHolder::Prepared } else { v1::TicketHolder::Backend };
            shown.holder = kind.into();
            shown.pid = holder.pid;
            shown.application_name = holder.application_name;
            shown.login = holder.login;
            shown.client_address = holder.client_address;
            shown.state = holder.state;
            shown.transaction_started_at = holder.xact_start.map(timestamp);
            shown.query_started_at = holder.query_start.map(timestamp);
            shown.prepared_gid = holder.gid;
            shown.prepared_at = holder.prepared.map(timestamp);
        }
        shown
    });
    v1::ListUnresolvedResponse { tickets: tickets.collect(), next_page_token: token(page.next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cut_before_it_is_too_large_but_never_to_nothing() {
        let large = v1::ParkedEvent { reason: "x".repeat(PAGE_BYTES / 2 - 100), ..Default::default() };
        let mut three = vec![large.clone(); 3];
        assert!(cut(&mut three));
        assert_eq!(three.len(), 2);
        assert!(!cut(&mut three));
        let mut one = vec![v1::ParkedEvent { reason: "x".repeat(PAGE_BYTES), ..Default::default() }];
        assert!(!cut(&mut one));
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn a_filter_that_says_nothing_matches_nothing_and_ids_and_filter_exclude_each_other() {
        let judge = |ids: &[&str], filter: Option<v1::EventFilter>, token: &str| {
            let mut violations = Violations::default();
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            selection(&ids, filter.as_ref(), token, &mut violations);
            violations.listed().iter().map(|one| one.field.clone()).collect::<Vec<_>>()
        };
        let all = v1::EventFilter { all: true, ..Default::default() };
        let typed = v1::EventFilter { event_type: "a".into(), ..Default::default() };
        let id = "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11";
        assert_eq!(judge(&[], None, ""), ["ids"]);
        assert_eq!(judge(&[], Some(v1::EventFilter::default()), ""), ["filter"]);
        assert_eq!(judge(&[id], Some(all.clone()), ""), ["filter"]);
        assert_eq!(judge(&[id, "x", "0198c2a57d1e7c439d0c2f6f0f0c9a11"], None, ""), ["ids[1]", "ids[2]"]);
        assert_eq!(judge(&vec![id; 1_001], None, ""), ["ids"]);
        assert_eq!(judge(&[id], None, "7"), ["continue_token"]);
        assert_eq!(judge(&[], Some(typed.clone()), "x"), ["continue_token"]);
        let both = v1::EventFilter { all: true, ..typed.clone() };
        assert_eq!(judge(&[], Some(both), ""), ["filter.all"]);
        assert_eq!(judge(&[], Some(typed), "7"), Vec::<String>::new());
        assert_eq!(judge(&[], Some(all), ""), Vec::<String>::new());
    }
}
