//! What a generated client sends its calls over: a replica is chosen and the access token added, call by call.
//!
//! Guarantees: a token is sent with every call or the call is not sent; it never shows (its header is sensitive); a refused
//! one is told to its source.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{Request, Response};
use tonic::body::Body;
use tonic::{Code, ConnectError, Status};
use tower::{Service, ServiceExt as _};

use super::endpoints::Endpoints;
use crate::token::TokenSource;

/// An error of the transport, which the generated client makes a [`Status`] of.
type BoxError = Box<dyn StdError + Send + Sync>;

/// The connection as a generated client of [`crate::v1`] takes it, for RPCs that this crate has no method for. Cheap to
/// clone; the clones share the connections.
///
/// Adds the token and chooses the replica. Deadlines and repetitions are then yours: see [`crate::rpc`] for what may be
/// sent again.
///
/// ```no_run
/// use holdfast_client::v1::{GetEventRequest, outbox_service_client::OutboxServiceClient};
///
/// # async fn example(holdfast: holdfast_client::Holdfast) -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = OutboxServiceClient::new(holdfast.transport());
/// let mut request = tonic::Request::new(GetEventRequest { service: "orders".into(), id: "…".into() });
/// request.set_timeout(std::time::Duration::from_secs(5));
/// let event = client.get_event(request).await?.into_inner();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    endpoints: Endpoints,
    tokens: Option<Box<dyn TokenSource>>,
}

/// Put into a call's extensions it is set when the call's token was refused and its source may have another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Renewable(Arc<AtomicBool>);

impl Renewable {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Transport {
    pub(super) fn new(endpoints: Endpoints, tokens: Option<Box<dyn TokenSource>>) -> Self {
        Self(Arc::new(Inner { endpoints, tokens }))
    }

    /// How many replicas there are.
    pub(crate) fn replicas(&self) -> usize {
        self.0.endpoints.count()
    }

    /// Whether a call that found a replica away has another one to go to.
    pub(crate) fn any_up(&self) -> bool {
        self.0.endpoints.any_up()
    }
}

impl Inner {
    async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        // A caller that brought a token of its own keeps it.
        let token = match &self.tokens {
            Some(source) if !request.headers().contains_key(AUTHORIZATION) => {
                let token = source.token().await?;
                request.headers_mut().insert(AUTHORIZATION, token.header());
                Some((source, token))
            }
            _ => None,
        };
        let renewable = request.extensions().get::<Renewable>().cloned();
        let replica = self.endpoints.pick().ok_or("there is no endpoint")?;
        let mut channel = replica.channel();
        let sent = async { channel.ready().await?.call(request).await };
        match sent.await {
            Ok(response) => {
                replica.is_up();
                // A refusal is an answer without a body: its status is among the headers.
                let status = Status::from_header_map(response.headers());
                if let (Some((source, token)), Some(Code::Unauthenticated)) =
                    (token, status.map(|status| status.code()))
                    && source.invalidate(&token)
                    && let Some(renewable) = renewable
                {
                    renewable.0.store(true, Ordering::Relaxed);
                }
                Ok(response)
            }
            Err(error) => {
                if is_unconnected(&error) {
                    replica.cannot_connect();
                }
                Err(error.into())
            }
        }
    }
}

/// Whether an error says that there was no connection, hence that nothing was sent.
pub(crate) fn is_unconnected(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |cause| (*cause).source()).any(|cause| cause.is::<ConnectError>())
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    /// Always ready: a replica is chosen, and waited for, by the call.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.call(request).await })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("endpoints", &self.0.endpoints)
            .field("token", &self.0.tokens.is_some())
            .finish()
    }
}
