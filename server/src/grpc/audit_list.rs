//! `ListAdminAudit`: which calls are wanted, who may see them, and how they are shown.

use holdfast_proto::envelope::{self, Violations};
use holdfast_proto::v1;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Failure, Services, timestamp};
use crate::audit::{self, Ended, Filter, Page, Recorded};
use crate::auth::{AdminScope, Caller, FleetAdmin, MissingScope};

const PAGE: usize = 100;
/// No token's `sub` and no RPC's name is longer.
const LONGEST: usize = 255;

/// What is asked for.
pub(super) struct Wanted {
    pub(super) filter: Filter,
    pub(super) before: Option<i64>,
    pub(super) limit: usize,
}

/// Who may see which calls.
pub(super) enum Auditor {
    /// All.
    Fleet(FleetAdmin),
    /// One service's.
    Service(AdminScope),
}

impl Auditor {
    /// `holdfast.admin`, or the service's own admin.
    pub(super) fn of(caller: &Caller, service: Option<&str>) -> Result<Self, MissingScope> {
        match (caller.fleet_admin(), service) {
            (Ok(proof), _) => Ok(Self::Fleet(proof)),
            (Err(_), Some(service)) => caller.admin(service).map(Self::Service),
            (Err(missing), None) => Err(missing),
        }
    }

    /// No more than this one may see.
    pub(super) fn narrow(self, filter: Filter) -> Filter {
        match self {
            Self::Fleet(_) => filter,
            Self::Service(scope) => Filter { service: Some(scope.service().to_owned()), ..filter },
        }
    }
}

/// Everything that is wrong with a request, or what it asks for.
pub(super) fn wanted(request: &v1::ListAdminAuditRequest) -> Result<Wanted, Failure> {
    let mut violations = Violations::default();
    if !request.service.is_empty()
        && request.service != envelope::BUILT_IN_SERVICE
        && let Err(Failure::Invalid(found) | Failure::ReservedService(found)) =
            Services::check_name(&request.service)
    {
        violations.merge(found);
    }
    for (field, text) in [("sub", &request.sub), ("verb", &request.verb)] {
        if text.len() > LONGEST || text.contains('\0') {
            violations.push(field, "must be at most 255 bytes without U+0000");
        }
    }
    let mut time = |field: &str, given: Option<&prost_types::Timestamp>| {
        let read = given.map(read_timestamp);
        if read == Some(None) {
            violations.push(field, "must be a time between the years 1 and 9999");
        }
        read.flatten()
    };
    let (from, to) = (time("from", request.from.as_ref()), time("to", request.to.as_ref()));
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        violations.push("to", "must be after `from`");
    }
    let limit = usize::try_from(request.page_size).unwrap_or(usize::MAX);
    if limit > audit::MOST {
        violations.push("page_size", "must be at most 500");
    }
    let before = (!request.page_token.is_empty()).then(|| request.page_token.parse::<i64>());
    if matches!(before, Some(Err(_))) {
        violations.push("page_token", "must be a `next_page_token` of this RPC");
    }
    if !violations.is_empty() {
        return Err(Failure::Invalid(violations));
    }
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    Ok(Wanted {
        filter: Filter {
            service: given(&request.service),
            sub: given(&request.sub),
            verb: given(&request.verb),
            from,
            to,
        },
        before: before.and_then(Result::ok),
        limit: if limit == 0 { PAGE } else { limit },
    })
}

impl Wanted {
    /// For the audit: this call is in it, too.
    pub(super) fn arguments(&self) -> Value {
        let Self { filter, before, limit } = self;
        let time = |at: Option<OffsetDateTime>| at.map(|at| at.to_string());
        let all = [
            ("sub", json!(filter.sub)),
            ("verb", json!(filter.verb)),
            ("from", json!(time(filter.from))),
            ("to", json!(time(filter.to))),
            ("before", json!(before)),
            ("page_size", json!(limit)),
        ];
        let said = all.into_iter().filter(|(_, value)| !value.is_null());
        Value::Object(said.map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

fn read_timestamp(given: &prost_types::Timestamp) -> Option<OffsetDateTime> {
    let nanos = u32::try_from(given.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let at = OffsetDateTime::from_unix_timestamp(given.seconds).ok()?.replace_nanosecond(nanos).ok()?;
    (1..=9999).contains(&at.year()).then_some(at)
}

pub(super) fn described(page: Page) -> v1::ListAdminAuditResponse {
    v1::ListAdminAuditResponse {
        calls: page.calls.into_iter().map(call).collect(),
        next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
    }
}

fn call(call: Recorded) -> v1::AdminCall {
    let (outcome, ended_at, counts, why) = match call.ended {
        Ended::Denied(scope) => (v1::AdminOutcome::Denied, None, String::new(), scope),
        Ended::Unknown => (v1::AdminOutcome::Unknown, None, String::new(), String::new()),
        Ended::Done { at, counts } => (v1::AdminOutcome::Done, at, counts, String::new()),
        Ended::Failed { at, reason } => (v1::AdminOutcome::Failed, at, String::new(), reason),
    };
    v1::AdminCall {
        id: call.id,
        at: Some(timestamp(call.at)),
        request_id: call.request_id,
        sub: call.sub,
        service: call.service.unwrap_or_default(),
        verb: call.verb,
        arguments: call.arguments,
        outcome: outcome.into(),
        ended_at: ended_at.map(timestamp),
        counts,
        why,
    }
}
