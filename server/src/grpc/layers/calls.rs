//! Counts calls by method and status code, times them, and says each at debug. A call ends with its status, which may be in
//! the headers or come after the body; one whose body is dropped before is the caller's CANCELLED.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message as _;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Span, debug};

use crate::metrics::Grpc;

/// Counts calls.
#[derive(Debug, Clone)]
pub struct Calls {
    metrics: Grpc,
    /// What is served; anything else is `other`, since a caller can ask for any path.
    methods: Arc<HashSet<String>>,
}

impl Calls {
    /// For the methods of these descriptor sets.
    ///
    /// # Errors
    /// One of them is none.
    pub fn new(metrics: Grpc, described: &[&[u8]]) -> Result<Self, prost::DecodeError> {
        let mut methods = HashSet::new();
        for set in described {
            for file in prost_types::FileDescriptorSet::decode(*set)?.file {
                for service in &file.service {
                    let named = |method: &prost_types::MethodDescriptorProto| {
                        format!("{}.{}/{}", file.package(), service.name(), method.name())
                    };
                    methods.extend(service.method.iter().map(named));
                }
            }
        }
        Ok(Self { metrics, methods: Arc::new(methods) })
    }

    fn method(&self, path: &str) -> &str {
        let asked = path.trim_start_matches('/');
        match self.methods.get(asked) {
            Some(method) => method,
            None if asked.starts_with("grpc.reflection.") => "grpc.reflection",
            None => "other",
        }
    }
}

impl<S> Layer<S> for Calls {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Counting { inner, calls: self.clone() }
    }
}

/// The service of [`Calls`].
#[derive(Debug, Clone)]
pub struct Counting<S> {
    inner: S,
    calls: Calls,
}

impl<S, In, Out> Service<Request<In>> for Counting<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = Response<Counted<Out>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let call = Call::begin(&self.calls, request.uri().path());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut call = call;
            let response = answer.await?;
            call.see(response.headers());
            Ok(response.map(|body| Counted { body: Box::pin(body), call }))
        })
    }
}

/// A call under way. Dropped without a status, it was cancelled.
struct Call {
    metrics: Grpc,
    method: String,
    began: Instant,
    span: Span,
    over: bool,
}

impl Call {
    fn begin(calls: &Calls, path: &str) -> Self {
        let method = calls.method(path).to_owned();
        calls.metrics.began(&method);
        let (began, span) = (Instant::now(), Span::current());
        Self { metrics: calls.metrics.clone(), method, began, span, over: false }
    }

    /// Its status, if it is in here.
    fn see(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.ended(status.code());
        }
    }

    fn ended(&mut self, code: Code) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let after = self.began.elapsed();
        self.metrics.ended(&self.method, name(code), after);
        self.span.in_scope(|| {
            debug!(
                rpc.method = self.method,
                rpc.code = name(code),
                micros = after.as_micros() as u64,
                "call ended"
            );
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ended(Code::Cancelled);
    }
}

/// The codes as gRPC's specification writes them.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// An answer's body, watched for the status that comes after it.
pub struct Counted<B> {
    body: Pin<Box<B>>,
    call: Call,
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.call.see(trailers);
                }
            }
            Some(Err(_)) => self.call.ended(Code::Unknown),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn only_what_is_served_has_a_series_of_its_own() {
        let metrics = Metrics::new(prometheus::Registry::new()).unwrap();
        let sets = [holdfast_proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let calls = Calls::new(metrics.grpc().clone(), &sets).unwrap();
        for (path, method) in [
            ("/holdfast.v1.OutboxService/StageInTx", "holdfast.v1.OutboxService/StageInTx"),
            ("/grpc.health.v1.Health/Watch", "grpc.health.v1.Health/Watch"),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "grpc.reflection"),
            ("/holdfast.v1.OutboxService/Nonsense", "other"),
            ("/", "other"),
        ] {
            assert_eq!(calls.method(path), method);
        }
    }

    #[test]
    fn a_call_without_a_status_was_cancelled_and_is_not_in_flight_any_more() {
        let metrics = Metrics::new(prometheus::Registry::new()).unwrap();
        let calls = Calls::new(metrics.grpc().clone(), &[]).unwrap();
        let call = Call::begin(&calls, "/x");
        assert!(metrics.text().unwrap().contains("holdfast_grpc_calls_in_flight{method=\"other\"} 1"));
        drop(call);
        let text = metrics.text().unwrap();
        assert!(text.contains("holdfast_grpc_calls_in_flight{method=\"other\"} 0"), "{text}");
        assert!(text.contains("holdfast_grpc_calls_total{code=\"CANCELLED\",method=\"other\"} 1"), "{text}");
    }
}
