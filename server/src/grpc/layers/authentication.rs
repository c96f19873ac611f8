//! Who calls: every call but those of an open rule ([`crate::grpc::rules`]) brings a bearer token, and whoever it names goes along with the
//! request as a [`Caller`]. What the caller may do is decided where the service's name is known, by proof values.
//!
//! A path without a rule is answered like one that nobody serves, whatever serves it: a new RPC is shut until somebody has
//! said what it takes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use tonic::Status;
use tower::{Layer, Service};
use tracing::debug;

use crate::auth::{Caller, Check, Verifier, bearer};
use crate::grpc::Failure;
use crate::grpc::rules::{self, Reflection, Rule};
use crate::metrics;

/// Who is let in.
#[derive(Debug, Clone)]
pub enum Gate {
    /// Whoever has a token that this verifies.
    Tokens(Arc<Verifier>),
    /// Everybody, as [`Caller::of_open_server`]. For `holdfast dev`.
    Open,
}

/// Lets callers in, or not.
#[derive(Debug, Clone)]
pub struct Authentication {
    gate: Gate,
    reflection: Reflection,
    metrics: metrics::Auth,
}

impl Authentication {
    /// With this gate.
    pub fn new(gate: Gate, reflection: Reflection, metrics: metrics::Auth) -> Self {
        metrics.expect(&Check::ALL.map(Check::label));
        Self { gate, reflection, metrics }
    }

    /// The caller; `None` where the rule asks for none.
    fn admit(&self, path: &str, headers: &HeaderMap) -> Result<Option<Caller>, Status> {
        let rule = rules::of(path, self.reflection);
        if rule == Some(Rule::Open) {
            return Ok(None);
        }
        let caller = self.identify(headers).map_err(|check| {
            self.metrics.refused(check.label());
            // The caller is not told: it would be told to whoever guesses, too.
            debug!(%check, rpc.path = path, "a call without a valid token");
            Failure::Unauthenticated.into_status("")
        })?;
        match rule {
            Some(_) => Ok(Some(caller)),
            None => Err(Status::unimplemented("there is no such method here")),
        }
    }

    fn identify(&self, headers: &HeaderMap) -> Result<Caller, Check> {
        let Gate::Tokens(verifier) = &self.gate else { return Ok(Caller::of_open_server()) };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(if headers.contains_key(AUTHORIZATION) { Check::Scheme } else { Check::Missing });
        };
        let verified = verifier.verify(bearer(value.to_str().map_err(|_| Check::Scheme)?)?)?;
        self.metrics.accepted(&verified.kid);
        Ok(verified.caller)
    }
}

impl<S> Layer<S> for Authentication {
    type Service = Authenticating<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticating { inner, authentication: self.clone() }
    }
}

/// The service of [`Authentication`].
#[derive(Debug, Clone)]
pub struct Authenticating<S> {
    inner: S,
    authentication: Authentication,
}

impl<S, In, Out> Service<Request<In>> for Authenticating<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    Out: Default + Send,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<In>) -> Self::Future {
        match self.authentication.admit(request.uri().path(), request.headers()) {
            Err(status) => Box::pin(async move { Ok(status.into_http()) }),
            Ok(caller) => {
                // From here on nobody needs the token, and nobody can print it.
                request.headers_mut().remove(AUTHORIZATION);
                if let Some(caller) = caller {
                    request.extensions_mut().insert(caller);
                }
                Box::pin(self.inner.call(request))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tonic::Code;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_path_without_a_rule_does_not_reach_what_serves_it_not_even_on_an_open_server() {
        let metrics = Metrics::new(prometheus::Registry::new()).unwrap();
        let open = Authentication::new(Gate::Open, Reflection::Off, metrics.auth().clone());
        let admitted = |path: &str| open.admit(path, &HeaderMap::new());
        assert!(admitted("/holdfast.v1.OutboxService/StageNow").unwrap().is_some());
        assert_eq!(admitted("/grpc.health.v1.Health/Check").unwrap(), None);
        for path in [
            "/holdfast.v1.OutboxService/NewInThisRelease",
            "/holdfast.v1.OutboxService/StageNow/",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/",
        ] {
            assert_eq!(admitted(path).unwrap_err().code(), Code::Unimplemented, "{path}");
        }
    }
}
