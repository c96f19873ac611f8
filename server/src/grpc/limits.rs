//! The codec's own size check comes before our code and answers OUT_OF_RANGE; callers are promised RESOURCE_EXHAUSTED with
//! both sizes for whatever is too large. This layer renames that one answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderValue, Response};
use tower::{Layer, Service};

/// The message's beginning, as the codec writes it; both sizes follow.
const OVERSIZE: &str = "Error, decoded message length too large";
const OUT_OF_RANGE: &str = "11";
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

/// Renames the codec's OUT_OF_RANGE for an oversized message to RESOURCE_EXHAUSTED.
#[derive(Debug, Clone, Copy, Default)]
pub struct RenameOversize;

impl<S> Layer<S> for RenameOversize {
    type Service = Renaming<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Renaming { inner }
    }
}

/// The service of [`RenameOversize`].
#[derive(Debug, Clone)]
pub struct Renaming<S> {
    inner: S,
}

impl<S, Req, Body> Service<Req> for Renaming<S>
where
    S: Service<Req, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            let headers = response.headers_mut();
            let is = |name: &str, test: &dyn Fn(&str) -> bool| {
                headers.get(name).and_then(|v| v.to_str().ok()).is_some_and(test)
            };
            // The text is percent-encoded on the wire: spaces and commas are not.
            let oversize = is("grpc-status", &|s| s == OUT_OF_RANGE)
                && is("grpc-message", &|m| m.replace("%20", " ").replace("%2C", ",").starts_with(OVERSIZE));
            if oversize {
                headers.insert("grpc-status", RESOURCE_EXHAUSTED);
            }
            Ok(response)
        })
    }
}
