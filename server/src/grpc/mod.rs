//! The front: gRPC in, our own types on. Converts once, validates, and turns every outcome into one status by one table
//! ([`status`]). Only here tonic is known. Design, sections 2, 3 and 13.

mod authentication;
mod limits;
mod outbox_service;
pub mod probes;
mod rules;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::envelope::{self, Violations};
use tonic::{Request, Status};
use tracing::error;

use crate::auth::{Caller, ReadScope, WriteScope};
use crate::db::Pool;
use crate::outbox::{drain, stage};

pub use authentication::{Authentication, Gate};
pub use limits::RenameOversize;
pub use outbox_service::OutboxFront;
pub use rules::Reflection;
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
}

/// The configured services by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Services(Arc<HashMap<String, ServiceHandle>>);

impl Services {
    /// All of them.
    pub fn new(services: HashMap<String, ServiceHandle>) -> Self {
        Self(Arc::new(services))
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

    /// A service, for who may stage for it.
    fn to_write(&self, scope: &WriteScope) -> Result<&ServiceHandle, Failure> {
        self.0.get(scope.service()).ok_or(Failure::UnknownService)
    }

    /// A service, for who may look at it.
    fn to_read(&self, scope: &ReadScope) -> Result<&ServiceHandle, Failure> {
        self.0.get(scope.service()).ok_or(Failure::UnknownService)
    }
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
