//! A name for each call: the caller's `x-request-id` if it is a sane one, else one of ours. It is in every log line of the call
//! (span `call`), in the answer's metadata, and as `request_id` in the ErrorInfo of each error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service};
use tracing::{Instrument, info_span};
use uuid::Uuid;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Room for a UUID or a trace id with a prefix; it is repeated in every line and error.
const LONGEST: usize = 128;

/// A call's name, as an extension of its request.
#[derive(Debug, Clone)]
pub(crate) struct CallId(pub(crate) Arc<str>);

/// Names calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestId;

impl<S> Layer<S> for RequestId {
    type Service = Naming<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Naming { inner }
    }
}

/// The service of [`RequestId`].
#[derive(Debug, Clone)]
pub struct Naming<S> {
    inner: S,
}

impl<S, In, Out> Service<Request<In>> for Naming<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<In>) -> Self::Future {
        let id = request.headers().get(&HEADER).and_then(sane).unwrap_or_else(|| Uuid::now_v7().to_string());
        request.extensions_mut().insert(CallId(id.as_str().into()));
        let span = info_span!("call", request.id = %id);
        let answer = span.in_scope(|| self.inner.call(request));
        let named = async move {
            let mut response = answer.await?;
            if let Some(status) = Status::from_header_map(response.headers()).and_then(|s| named(&s, &id)) {
                // What cannot be written stays as it was.
                let _ = status.add_header(response.headers_mut());
            }
            if let Ok(value) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(HEADER, value);
            }
            Ok(response)
        };
        Box::pin(named.instrument(span))
    }
}

/// The caller's own, if it can be repeated anywhere.
fn sane(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let fits = (1..=LONGEST).contains(&text.len());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=".contains(c);
    (fits && text.chars().all(plain)).then(|| text.to_owned())
}

/// The same error with the id in its ErrorInfo; `None` for what has none.
fn named(status: &Status, id: &str) -> Option<Status> {
    let mut details: ErrorDetails = status.check_error_details().ok()?;
    let info = details.error_info()?.clone();
    let mut metadata = info.metadata;
    metadata.insert("request_id".to_owned(), id.to_owned());
    details.set_error_info(info.reason, info.domain, metadata);
    let code = status.code();
    let theirs = status.metadata().clone();
    Some(Status::with_error_details_and_metadata(code, status.message(), details, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_plain_id_of_the_callers_is_taken_over() {
        let taken = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok().as_ref().and_then(sane);
        assert_eq!(
            taken("0af7651916cd43dd-8448eb211c80319c").as_deref(),
            Some("0af7651916cd43dd-8448eb211c80319c")
        );
        for bad in ["", "two words", "quo\"te", "ümlaut", &"x".repeat(LONGEST + 1)] {
            assert_eq!(taken(bad), None, "{bad:?}");
        }
    }
}
