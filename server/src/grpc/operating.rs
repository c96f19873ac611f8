//! An operator's call about one service: the scope, the service, the rest, in that order, and all of it in the audit.

use holdfast_proto::envelope::Violations;
use serde_json::Value;
use tonic::{Response, Status};

use super::admin::{Acted, Admin, Asked};
use super::{Failure, ServiceHandle, Services, answer};
use crate::auth::Caller;

/// The way to act on a service. Cheap to clone.
#[derive(Clone)]
pub(super) struct Operating {
    services: Services,
    admin: Admin,
}

/// A call, as it came.
pub(super) struct Call {
    pub(super) id: String,
    pub(super) caller: Caller,
    pub(super) service: String,
    pub(super) verb: &'static str,
    pub(super) arguments: Value,
    pub(super) violations: Violations,
}

impl Operating {
    pub(super) fn new(services: Services, admin: Admin) -> Self {
        Self { services, admin }
    }

    /// Does `work` for whom may operate the service. A name that no service can have is told with everything else that is wrong;
    /// with any other the scope comes first, then whether the service exists, then the rest: and all that is in the audit.
    pub(super) async fn act<T, F>(
        &self,
        call: Call,
        work: impl FnOnce(ServiceHandle) -> F + Send + 'static,
    ) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<Acted<T>, Failure>> + Send + 'static,
    {
        let name = call.service.clone();
        self.acted(call, work).await.map(Response::new).map_err(|failure| answer(failure, &name))
    }

    async fn acted<T, F>(
        &self,
        call: Call,
        work: impl FnOnce(ServiceHandle) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<Acted<T>, Failure>> + Send + 'static,
    {
        let Call { id, caller, service, verb, arguments, mut violations } = call;
        match Services::check_name(&service) {
            Ok(()) => {}
            Err(Failure::Invalid(found)) => {
                violations.merge(found);
                return Err(Failure::Invalid(violations));
            }
            Err(Failure::ReservedService(found)) => {
                violations.merge(found);
                return Err(Failure::ReservedService(violations));
            }
            Err(other) => return Err(other),
        }
        let proof = caller.admin(&service);
        let asked = Asked { request_id: id, caller, service: Some(service), verb, arguments };
        let services = self.services.clone();
        self.admin
            .act(asked, proof, move |scope| async move {
                let service = services.to_operate(&scope)?.clone();
                if !violations.is_empty() {
                    return Err(Failure::Invalid(violations));
                }
                work(service).await
            })
            .await
    }
}
