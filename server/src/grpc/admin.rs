//! An admin's call, whatever it does: allowed or denied, it is in the audit. This is the one way to act as an admin: what is to
//! be done is handed over as a closure that takes the proof.

use serde_json::Value;
use tracing::{Instrument as _, Span, info};

use super::Failure;
use crate::audit::{Audit, Call};
use crate::auth::{Caller, MissingScope};
use crate::metrics;

/// The way to act as an admin. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admin {
    audit: Audit,
    metrics: metrics::Auth,
}

/// What an admin asks for.
pub(super) struct Asked {
    /// The call's name in the log.
    pub(super) request_id: String,
    /// Who asks.
    pub(super) caller: Caller,
    /// Whose service it is about; `None`: the fleet's.
    pub(super) service: Option<String>,
    /// The RPC's name.
    pub(super) verb: &'static str,
    /// What is asked for, without payloads.
    pub(super) arguments: Value,
}

/// What was done.
pub(super) struct Acted<T> {
    /// The answer.
    pub(super) answer: T,
    /// A JSON object of what was matched, acted on, skipped: for the audit.
    pub(super) counts: Value,
}

impl Admin {
    /// With this audit.
    pub fn new(audit: Audit, metrics: metrics::Auth) -> Self {
        Self { audit, metrics }
    }

    /// The audit, for who lists it.
    pub(super) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Does `work` if the scope was proven, and writes down that it was asked for before, and what came of it after. In a task
    /// of its own: a caller that is gone leaves no half of it behind.
    pub(super) async fn act<P, T, F>(
        &self,
        asked: Asked,
        proof: Result<P, MissingScope>,
        work: impl FnOnce(P) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        P: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<Acted<T>, Failure>> + Send + 'static,
    {
        let this = self.clone();
        let whole = async move { this.whole(asked, proof, work).await };
        tokio::spawn(whole.instrument(Span::current())).await.map_err(|_| Failure::Internal)?
    }

    async fn whole<P, T, F>(
        &self,
        asked: Asked,
        proof: Result<P, MissingScope>,
        work: impl FnOnce(P) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Acted<T>, Failure>>,
    {
        let Asked { request_id, caller, service, verb, arguments } = asked;
        let said = |outcome: &str| {
            self.metrics.admin(verb, outcome);
            info!(sub = caller.sub(), service.name = service.as_deref(), verb, outcome, "admin call");
        };
        let call =
            Call { request_id, sub: caller.sub().to_owned(), service: service.clone(), verb, arguments };
        let proof = match proof {
            Ok(proof) => proof,
            Err(missing) => {
                said("denied");
                self.audit.denied(&call, &missing).await;
                return Err(missing.into());
            }
        };
        let entry = match self.audit.begin(call).await {
            Ok(entry) => entry,
            Err(error) => {
                said("unaudited");
                return Err(Failure::Audit(error));
            }
        };
        match work(proof).await {
            Ok(Acted { answer, counts }) => {
                said("done");
                entry.done(&counts).await;
                Ok(answer)
            }
            Err(failure) => {
                said("failed");
                entry.failed(failure.reason()).await;
                Err(failure)
            }
        }
    }
}
