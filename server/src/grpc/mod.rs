//! The front: gRPC in, our own types on. Converts once, validates, and turns every outcome into one status by one table
//! ([`status`]). Only here tonic is known. Design, sections 2, 3 and 13.

mod limits;
mod outbox_service;
pub mod probes;
mod rules;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::envelope::{self, Violations};

use crate::db::Pool;
use crate::outbox::{drain, stage};

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
