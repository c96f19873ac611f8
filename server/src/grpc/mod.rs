//! The front: gRPC in, our own types on. Converts once, validates, and turns every outcome into one status by one table
//! ([`status`]). Only here tonic is known. Design, sections 2, 3 and 13.

mod control_service;
mod hold_service;
mod layers;
mod outbox_service;
pub mod probes;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::envelope::{self, Violations};
use time::OffsetDateTime;
use tonic::Status;
use tracing::error;

use crate::db::Pool;
use crate::metrics::ServiceMetrics;
use crate::outbox::{depth, drain, holds, stage};

pub use control_service::{ControlFront, Settings, ThisReplica};
pub use hold_service::HoldFront;
pub use layers::{Calls, RenameOversize, RequestId};
pub use outbox_service::OutboxFront;
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
    /// What is counted and measured of it.
    pub metrics: ServiceMetrics,
    /// What lies in its outbox.
    pub depth: depth::Latest,
    /// The settings that callers and operators may know.
    pub settings: Settings,
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

    /// The service of that name, or what a caller's name deserves: a violation of `service`, or that it is not known.
    fn find(&self, name: &str) -> Result<&ServiceHandle, Failure> {
        if let Some(problem) = envelope::service_name_problem(name) {
            let mut violations = Violations::default();
            violations.push("service", problem);
            return Err(if envelope::is_reserved_service(name) {
                Failure::ReservedService(violations)
            } else {
                Failure::Invalid(violations)
            });
        }
        self.0.get(name).ok_or(Failure::UnknownService)
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

fn timestamp(at: OffsetDateTime) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix_timestamp(),
        nanos: i32::try_from(at.nanosecond()).unwrap_or_default(),
    }
}
