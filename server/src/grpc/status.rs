//! One closed table from what went wrong to what a caller sees: gRPC code, reason, whether the write surely did not happen,
//! when to come again. Texts are at most 1 KB and hold no SQL, payload or connection string.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::ERROR_DOMAIN;
use holdfast_proto::envelope::{Invalid, TooLarge, Violations};
use holdfast_proto::v1::ErrorReason;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::auth::MissingScope;
use crate::db::{self, Kind};
use crate::inbox;
use crate::outbox::stage::Refused;
use crate::outbox::{holds, operator, replay};

/// Everything an RPC of ours can fail with.
#[derive(Debug)]
pub enum Failure {
    /// Rules broken, by field.
    Invalid(Violations),
    /// The ticket is 0; other rules may be broken, too.
    TicketMissing(Violations),
    /// One size over its limit.
    TooLarge(TooLarge),
    /// A name the server keeps for itself; other rules may be broken, too.
    ReservedService(Violations),
    /// Not configured.
    UnknownService,
    /// Nothing to be found under this id.
    EventNotFound,
    /// No token, or one that is no good. Why is not told.
    Unauthenticated,
    /// The caller may not do this.
    Scope(MissingScope),
    /// An admin's call could not be written down, so it did not act.
    Audit(db::Error),
    /// Staging said no.
    Stage(Refused),
    /// A release or drop was not carried out.
    Hold(holds::Refused),
    /// An operator's verb was not carried out.
    Operator(operator::Refused),
    /// The inbox said no.
    Inbox(inbox::Refused),
    /// A replay was refused.
    Replay(replay::Refused),
    /// A read failed.
    Read(db::Error),
    /// The service's schema is not ours.
    Drift(Arc<str>),
    /// A fault of ours.
    Internal,
}

impl From<MissingScope> for Failure {
    fn from(missing: MissingScope) -> Self {
        Self::Scope(missing)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Violations(violations) => Self::Invalid(violations),
            Invalid::TooLarge(too_large) => Self::TooLarge(too_large),
        }
    }
}

/// A contended id is free again when a transaction ends; most end within moments.
const CONTENDED_RETRY: Duration = Duration::from_millis(250);
const OVERLOADED_RETRY: Duration = Duration::from_secs(1);

/// One row of the table.
struct Row {
    reason: ErrorReason,
    message: String,
    applied_unknown: bool,
    retry: Option<Duration>,
}

impl Row {
    fn no(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), applied_unknown: false, retry: None }
    }

    fn retry(self, after: Duration) -> Self {
        Self { retry: Some(after), ..self }
    }

    fn unknown(self) -> Self {
        Self { applied_unknown: true, ..self }
    }
}

impl Failure {
    /// The status for a call about `service`.
    pub fn into_status(self, service: &str) -> Status {
        let row = self.row(service);
        let mut metadata = HashMap::new();
        // A name that breaks the rules is not repeated.
        if holdfast_proto::envelope::service_name_problem(service).is_none() {
            metadata.insert("service".to_owned(), service.to_owned());
        }
        if let Self::Scope(missing) = &self {
            metadata.insert("scope".to_owned(), missing.scope.clone());
        }
        metadata.insert("applied".to_owned(), if row.applied_unknown { "unknown" } else { "no" }.to_owned());
        if let Self::Hold(holds::Refused::Decided(outcome)) = &self {
            metadata.insert("outcome".to_owned(), outcome.as_str().to_owned());
        }
        match &self {
            Self::Replay(replay::Refused::Horizon(horizon)) => {
                let said = horizon.format(&time::format_description::well_known::Rfc3339);
                metadata.insert("horizon".to_owned(), said.unwrap_or_default());
            }
            Self::Replay(replay::Refused::State(state)) => {
                metadata.insert("state".to_owned(), (*state).to_owned());
            }
            Self::Replay(replay::Refused::PlanExpired) => {
                metadata.insert("state".to_owned(), "expired".to_owned());
            }
            Self::Inbox(inbox::Refused::Queue(queue)) => {
                metadata.insert("queue".to_owned(), queue.clone());
            }
            Self::Inbox(inbox::Refused::Unroutable { exchange, routing_key }) => {
                metadata.insert("exchange".to_owned(), exchange.clone());
                metadata.insert("routing_key".to_owned(), routing_key.clone());
            }
            _ => {}
        }
        if let Self::Drift(difference) = &self {
            metadata.insert("difference".to_owned(), difference.to_string());
        }
        let mut details = ErrorDetails::with_error_info(row.reason.reason(), ERROR_DOMAIN, metadata);
        if let Some(after) = row.retry {
            details.set_retry_info(Some(after));
        }
        if let Self::Invalid(violations)
        | Self::TicketMissing(violations)
        | Self::ReservedService(violations) = &self
        {
            for violation in violations.listed() {
                details.add_bad_request_violation(&violation.field, &violation.description);
            }
        }
        Status::with_error_details(row.reason.code(), row.message, details)
    }

    /// What a call for a service is refused with, where that is only a part of an answer.
    pub(super) fn said_of(&self, service: &str) -> (ErrorReason, String) {
        let row = self.row(service);
        (row.reason, row.message)
    }

    /// Its reason, as the audit keeps it.
    pub(super) fn reason(&self) -> &'static str {
        self.row("").reason.reason()
    }

    /// Whether it is the server's own fault, which its log must explain.
    pub(super) fn is_fault(&self) -> bool {
        self.row("").reason == ErrorReason::Internal
    }

    /// What happened, for the log: without values of rows, which a database's own text may hold.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Stage(refused) => refused.to_string(),
            Self::Hold(refused) => refused.to_string(),
            Self::Operator(refused) => refused.to_string(),
            Self::Inbox(refused) => refused.to_string(),
            Self::Replay(refused) => refused.to_string(),
            Self::Read(error) | Self::Audit(error) => error.to_string(),
            other => format!("{other:?}"),
        }
    }

    fn row(&self, service: &str) -> Row {
        match self {
            Self::Invalid(violations) => Row::no(ErrorReason::InvalidRequest, violations.to_string()),
            Self::TicketMissing(violations) => Row::no(ErrorReason::TicketMissing, violations.to_string()),
            Self::TooLarge(too_large) => Row::no(ErrorReason::TooLarge, too_large.to_string()),
            Self::ReservedService(violations) => {
                Row::no(ErrorReason::ReservedService, violations.to_string())
            }
            Self::UnknownService => {
                Row::no(ErrorReason::UnknownService, "service: not in the server's configuration")
            }
            Self::EventNotFound => Row::no(
                ErrorReason::EventNotFound,
                "id: no such event here: never staged, rolled back, discarded or pruned",
            ),
            Self::Unauthenticated => {
                Row::no(ErrorReason::Unauthenticated, "a valid bearer token is required")
            }
            Self::Scope(missing) => Row::no(ErrorReason::ScopeMissing, missing.to_string()),
            Self::Audit(error) => Row::no(
                ErrorReason::AuditUnavailable,
                format!("nothing was done: the audit in the control database cannot be used: {error}"),
            ),
            Self::Stage(refused) => stage_row(refused, service),
            Self::Hold(refused) => hold_row(refused, service),
            Self::Operator(operator::Refused::Busy) => {
                Row::no(ErrorReason::DrainBusy, operator::Refused::Busy.to_string()).retry(CONTENDED_RETRY)
            }
            Self::Operator(operator::Refused::Database(error)) => {
                database_row(error, service, !error.certainly_not_applied())
            }
            Self::Inbox(refused) => inbox_row(refused, service),
            Self::Replay(refused) => replay_row(refused, service),
            Self::Read(error) => database_row(error, service, false),
            Self::Drift(difference) => Row::no(
                ErrorReason::SchemaDrift,
                format!(
                    "the schema in the database of service {service} is not one that this server works with: {difference}"
                ),
            ),
            Self::Internal => Row::no(ErrorReason::Internal, "a fault in the server; see its log").unknown(),
        }
    }
}

fn stage_row(refused: &Refused, service: &str) -> Row {
    match refused {
        Refused::TicketNotOpen => Row::no(ErrorReason::TicketNotOpen, format!("ticket: {refused}")),
        Refused::TicketRolledBack => Row::no(ErrorReason::TicketRolledBack, format!("ticket: {refused}")),
        Refused::Conflict(_) => Row::no(ErrorReason::EventConflict, refused.to_string()),
        Refused::Contended(_) | Refused::Busy => {
            Row::no(ErrorReason::EventContended, refused.to_string()).retry(CONTENDED_RETRY)
        }
        Refused::HoldDropped => Row::no(ErrorReason::HoldDropped, format!("hold: {refused}")),
        Refused::HoldContended => {
            Row::no(ErrorReason::HoldContended, format!("hold: {refused}")).retry(CONTENDED_RETRY)
        }
        Refused::Overloaded => Row::no(ErrorReason::Overloaded, refused.to_string()).retry(OVERLOADED_RETRY),
        Refused::ShuttingDown => Row::no(ErrorReason::ShuttingDown, refused.to_string()),
        Refused::NoAnswer => Row::no(ErrorReason::Internal, "a fault in the server; see its log").unknown(),
        Refused::Database(error) => database_row(error, service, !error.certainly_not_applied()),
    }
}

fn hold_row(refused: &holds::Refused, service: &str) -> Row {
    match refused {
        holds::Refused::Decided(_) => Row::no(ErrorReason::HoldAlreadyDecided, format!("hold: {refused}")),
        holds::Refused::Busy => {
            Row::no(ErrorReason::HoldContended, format!("hold: {refused}")).retry(CONTENDED_RETRY)
        }
        holds::Refused::Database(error) => database_row(error, service, !error.certainly_not_applied()),
    }
}

fn inbox_row(refused: &inbox::Refused, service: &str) -> Row {
    use inbox::Refused;
    match refused {
        Refused::Queue(_) => Row::no(ErrorReason::QueueNotConfigured, format!("consumer_queue: {refused}")),
        Refused::TicketNotOpen => Row::no(ErrorReason::TicketNotOpen, format!("ticket: {refused}")),
        Refused::TicketRolledBack => Row::no(ErrorReason::TicketRolledBack, format!("ticket: {refused}")),
        Refused::Contended => {
            Row::no(ErrorReason::ConsumptionContended, refused.to_string()).retry(CONTENDED_RETRY)
        }
        Refused::Open => Row::no(ErrorReason::ConsumptionOpen, refused.to_string()).retry(CONTENDED_RETRY),
        Refused::Stale => Row::no(ErrorReason::ConsumptionStale, format!("generation: {refused}")),
        Refused::NotFound => Row::no(ErrorReason::ConsumptionNotFound, refused.to_string()),
        Refused::StaleLetter { published } => {
            let row = Row::no(ErrorReason::DeadLetterStale, format!("token: {refused}"));
            if *published { row.unknown() } else { row }
        }
        Refused::Unroutable { .. } => Row::no(ErrorReason::DeadLetterUnroutable, refused.to_string()),
        Refused::Broker { unknown, .. } => {
            let row = Row::no(ErrorReason::BrokerUnavailable, refused.to_string());
            if *unknown { row.unknown() } else { row }
        }
        Refused::Topology(_) => Row::no(ErrorReason::TopologyMismatch, refused.to_string()),
        Refused::TooLarge { field, actual, limit } => {
            let too_large = TooLarge { field: (*field).to_owned(), actual: *actual, limit: *limit };
            Row::no(ErrorReason::TooLarge, too_large.to_string())
        }
        Refused::Database(error) if error.kind == Kind::Contended => {
            Row::no(ErrorReason::ConsumptionContended, "others are at this message").retry(CONTENDED_RETRY)
        }
        Refused::Database(error) => database_row(error, service, !error.certainly_not_applied()),
    }
}

fn replay_row(refused: &replay::Refused, service: &str) -> Row {
    use replay::Refused;
    match refused {
        Refused::Horizon(_) => Row::no(ErrorReason::ReplayBeyondHorizon, format!("from: {refused}")),
        Refused::NotFound => Row::no(ErrorReason::ReplayNotFound, refused.to_string()),
        Refused::PlanExpired | Refused::State(_) => Row::no(ErrorReason::ReplayState, refused.to_string()),
        Refused::TooMany(_) => Row::no(ErrorReason::TooManyReplays, refused.to_string()),
        Refused::Database(error) => database_row(error, service, !error.certainly_not_applied()),
    }
}

/// `service` is a configured one: nobody else's database fails.
fn database_row(error: &db::Error, service: &str, applied_unknown: bool) -> Row {
    let row = match error.kind {
        Kind::Unavailable | Kind::TimedOut | Kind::Schema => {
            Row::no(ErrorReason::DatabaseUnavailable, format!("the database of service {service}: {error}"))
        }
        Kind::ReadOnly => {
            let message = format!("the database of service {service} refuses writes (SQLSTATE 25006)");
            Row::no(ErrorReason::DatabaseReadOnly, message)
        }
        Kind::Contended => {
            Row::no(ErrorReason::EventContended, "another transaction is in the way").retry(CONTENDED_RETRY)
        }
        Kind::Refused => {
            let code = error.sqlstate.as_deref().unwrap_or("unknown");
            Row::no(
                ErrorReason::InvalidRequest,
                format!("events: the database refuses a value (SQLSTATE {code})"),
            )
        }
        Kind::Other => Row::no(ErrorReason::Internal, "a fault in the server; see its log").unknown(),
    };
    if applied_unknown { row.unknown() } else { row }
}
