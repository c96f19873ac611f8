//! The front: gRPC in, our own types on. Converts once, validates, and turns every outcome into one status by one table
//! ([`status`]). Only here tonic is known. Design, sections 2, 3 and 13.

mod admin;
mod amqp_properties;
mod audit_list;
mod control_service;
mod hold_service;
mod inbox_service;
mod inbox_words;
mod layers;
mod operating;
mod outbox_admin_list;
mod outbox_admin_service;
mod outbox_service;
pub mod probes;
mod replay_service;
mod replay_words;
mod rules;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::envelope::{self, Violations};
use time::OffsetDateTime;
use tonic::{Request, Status};
use tracing::error;

use crate::auth::{AdminScope, Caller, ReadScope, WriteScope};
use crate::db::Pool;
use crate::inbox;
use crate::metrics::ServiceMetrics;
use crate::outbox::operator::Operator;
use crate::outbox::{depth, drain, holds, replay, stage};

pub use admin::Admin;
pub use control_service::{ControlFront, Settings, ThisReplica};
pub use hold_service::HoldFront;
pub use inbox_service::InboxFront;
use layers::CallId;
pub use layers::{Authentication, Calls, Gate, RenameOversize, RequestId};
pub use outbox_admin_service::OutboxAdminFront;
pub use outbox_service::OutboxFront;
pub use replay_service::ReplayFront;
pub use rules::{RULES, Reflection, Rule};
pub use status::Failure;

/// What the front needs of one configured service.
#[derive(Clone)]
pub struct ServiceHandle {
    /// Its database.
    pub pool: Pool,
    /// Its staging worker.
    pub stager: stage::Stager,
    /// Hints for its drainer.
    pub drain: drain::Hints,
    /// Its holds.
    pub holds: holds::Desk,
    /// Its inbox.
    pub inbox: inbox::Desk,
    /// Its replays.
    pub replays: replay::Desk,
    /// What an operator can see and do.
    pub operator: Operator,
    /// What is counted and measured of it.
    pub metrics: ServiceMetrics,
    /// What lies in its outbox.
    pub depth: depth::Latest,
    /// The settings that callers and operators may know.
    pub settings: Settings,
}

/// A service whose inbox is not to be asked.
struct NotAsked {
    service: String,
    queues: Vec<String>,
    failure: Failure,
}

/// The configured services by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Services(Arc<HashMap<String, ServiceHandle>>);

impl Services {
    /// All of them.
    pub fn new(services: HashMap<String, ServiceHandle>) -> Self {
        Self(Arc::new(services))
    }

    /// All of them, ascending by name.
    fn all(&self) -> Vec<(&str, &ServiceHandle)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, handle)| (name.as_str(), handle)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// Whether a service can have that name; nobody needs a right to be told that none can.
    fn check_name(name: &str) -> Result<(), Failure> {
        let Some(problem) = envelope::service_name_problem(name) else { return Ok(()) };
        let mut violations = Violations::default();
        violations.push("service", problem);
        Err(if envelope::is_reserved_service(name) {
            Failure::ReservedService(violations)
        } else {
            Failure::Invalid(violations)
        })
    }

    /// The inboxes that the caller may look into, by service; and those that are not to be asked, since their schema is not ours. Who
    /// consumes nothing is not asked: its database may be the one that is away.
    fn inboxes(&self, caller: &Caller) -> (Vec<(String, inbox::Desk)>, Vec<NotAsked>) {
        let (mut desks, mut refused) = (Vec::new(), Vec::new());
        for (name, handle) in self.all() {
            let queues = handle.inbox.queues();
            if caller.read(name).is_err() || queues.is_empty() {
                continue;
            }
            match served(handle) {
                Ok(handle) => desks.push((name.to_owned(), handle.inbox.clone())),
                Err(failure) => refused.push(NotAsked { service: name.to_owned(), queues, failure }),
            }
        }
        (desks, refused)
    }

    /// A service, for who may stage for it.
    fn to_write(&self, scope: &WriteScope) -> Result<&ServiceHandle, Failure> {
        served(self.known(scope.service())?)
    }

    /// A service, for who may operate it.
    fn to_operate(&self, scope: &AdminScope) -> Result<&ServiceHandle, Failure> {
        served(self.known(scope.service())?)
    }

    /// A service, for who may look at it.
    fn to_read(&self, scope: &ReadScope) -> Result<&ServiceHandle, Failure> {
        served(self.known(scope.service())?)
    }

    /// The same for an answer that needs no database.
    fn to_describe(&self, scope: &ReadScope) -> Result<&ServiceHandle, Failure> {
        self.known(scope.service())
    }

    fn known(&self, name: &str) -> Result<&ServiceHandle, Failure> {
        self.0.get(name).ok_or(Failure::UnknownService)
    }
}

/// Nothing is done in a database whose schema is not ours.
fn served(handle: &ServiceHandle) -> Result<&ServiceHandle, Failure> {
    handle.pool.gate().refusal().map_or(Ok(handle), |difference| Err(Failure::Drift(difference)))
}

/// Who calls, as the layer found out, and what is asked for.
fn calling<T>(request: Request<T>) -> Result<(Caller, T), Status> {
    match request.extensions().get::<Caller>().cloned() {
        Some(caller) => Ok((caller, request.into_inner())),
        // A rule let it pass that asks for nobody: a fault of ours, and no reason to let it in.
        None => {
            error!("an RPC that needs a caller was reached without one");
            Err(Failure::Internal.into_status(""))
        }
    }
}

/// Faults of ours are logged here, where they are handled; what callers did wrong is theirs to log.
fn answer(failure: Failure, service: &str) -> Status {
    if failure.is_fault() {
        error!(
            service.name = service,
            cause = failure.cause(),
            "a call failed through a fault of the server"
        );
    }
    failure.into_status(service)
}

/// A call's name, as the layer gave it.
fn call_id<T>(request: &Request<T>) -> String {
    request.extensions().get::<CallId>().map(|id| id.0.to_string()).unwrap_or_default()
}

fn timestamp(at: OffsetDateTime) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix_timestamp(),
        nanos: i32::try_from(at.nanosecond()).unwrap_or_default(),
    }
}
