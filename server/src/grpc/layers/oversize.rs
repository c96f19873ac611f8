//! The codec's own size check comes before our code, answers OUT_OF_RANGE and names its own limit; callers are promised
//! RESOURCE_EXHAUSTED with both sizes for whatever is too large. This layer replaces that one answer by ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use holdfast_proto::envelope::{MAX_REQUEST_BYTES, TooLarge};
use http::Response;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::grpc::Failure;

/// The message's beginning, as the codec writes it; the size that was announced follows, then the codec's limit.
const OVERSIZE: &str = "Error, decoded message length too large";

/// Replaces the codec's OUT_OF_RANGE for an oversized message by our own RESOURCE_EXHAUSTED.
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
            if let Some(status) = Status::from_header_map(response.headers()).and_then(|s| oversize(&s)) {
                // What cannot be written stays as the codec had it.
                let _ = status.add_header(response.headers_mut());
            }
            Ok(response)
        })
    }
}

/// Our answer to what the codec found too large; `None` for every other status.
fn oversize(status: &Status) -> Option<Status> {
    let sizes = status.message().strip_prefix(OVERSIZE).filter(|_| status.code() == Code::OutOfRange)?;
    let actual = sizes.split(|c: char| !c.is_ascii_digit()).find_map(|number| number.parse().ok())?;
    let limit = MAX_REQUEST_BYTES;
    // The request was not read, so its service is not known.
    Some(Failure::TooLarge(TooLarge { field: "request".into(), actual, limit }).into_status(""))
}
