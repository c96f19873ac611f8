//! The front: gRPC in, our own types on. Converts once, validates, and turns every outcome into one status by one table
//! ([`status`]). Only here tonic is known. Design, sections 2, 3 and 13.

mod limits;
mod outbox_service;
pub mod probes;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::envelope::{self, Violations};

use crate::db::Pool;
use crate::outbox::{drain, stage};
use crate::tickets;

pub use limits::RenameOversize;
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
    /// Hints for its resolver.
    pub resolver: tickets::Hints,
}

/// The configured services by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Services(Arc<HashMap<String, ServiceHandle>>);

impl Services {
    /// All of them.
    pub fn new(services: HashMap<String, ServiceHandle>) -> Self {
        Self(Arc::new(services))
    }

    /// The service of that name, or the violation or failure that a caller's name deserves.
    fn find(&self, name: &str, violations: &mut Violations) -> Result<&ServiceHandle, Failure> {
        if envelope::is_reserved_service(name) {
            return Err(Failure::ReservedService);
        }
        if let Some(problem) = envelope::service_name_problem(name) {
            violations.push("service", problem);
            return Err(Failure::Invalid(std::mem::take(violations)));
        }
        self.0.get(name).ok_or(Failure::UnknownService)
    }
}
