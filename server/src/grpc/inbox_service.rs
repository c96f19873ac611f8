//! `holdfast.v1.InboxService`: convert, validate, hand over, answer.

use holdfast_proto::consumption;
use holdfast_proto::envelope::{self, Violations};
use holdfast_proto::v1;
use holdfast_proto::v1::inbox_service_server::InboxService;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span, debug};
use uuid::Uuid;

use super::amqp_properties::{self, MOST_DEPTH};
use super::inbox_words::{dead_letter, described, duplicate, duration};
use super::{Failure, ServiceHandle, Services, answer, calling, timestamp};
use crate::auth::Caller;
use crate::inbox::{self, Begun, Binding, Delivery, FailKind, Key, Letter, Next, Token};

/// A dead letter's token must fit 256 bytes.
const MOST_QUEUE_BYTES: usize = 200;
/// AMQP's short strings.
const MOST_SHORT_BYTES: usize = 255;
const SHORTEST_LEASE: f64 = 1.0;
const LONGEST_LEASE: f64 = 12.0 * 3_600.0;

const TICKET_IS_MISSING: &str = "is missing: pass what SELECT holdfast.stage_ticket() returned";

/// The front of inboxes.
#[derive(Clone)]
pub struct InboxFront {
    services: Services,
}

impl InboxFront {
    /// A front to these services.
    pub fn new(services: Services) -> Self {
        Self { services }
    }

    /// Whose request it is, unless something is wrong with it: everything at once. With a name that can be somebody's the scope
    /// comes first.
    fn judged(
        &self,
        caller: &Caller,
        service: &str,
        mut violations: Violations,
        refuse: fn(Violations) -> Failure,
    ) -> Result<ServiceHandle, Failure> {
        match Services::check_name(service) {
            Ok(()) => {
                let service = self.services.to_write(&caller.write(service)?)?;
                if violations.is_empty() { Ok(service.clone()) } else { Err(refuse(violations)) }
            }
            Err(Failure::Invalid(found)) => {
                violations.merge(found);
                Err(Failure::Invalid(violations))
            }
            Err(Failure::ReservedService(found)) => {
                violations.merge(found);
                Err(Failure::ReservedService(violations))
            }
            Err(other) => Err(other),
        }
    }

    async fn begin(
        &self,
        caller: &Caller,
        request: v1::BeginConsumeRequest,
    ) -> Result<v1::BeginConsumeResponse, Failure> {
        let mut violations = Violations::default();
        let key = key(&request.consumer_queue, &request.envelope_id, &mut violations);
        short("source_service", &request.source_service, &mut violations);
        short("event_type", &request.event_type, &mut violations);
        let (binding, refuse) = binding(request.binding, &mut violations);
        let replay_id = match request.replay_id.as_str() {
            "" => None,
            text => uuid("replay_id", text, &mut violations),
        };
        if request.cycle < 0 {
            violations.push("cycle", "must not be negative");
        }
        let service = self.judged(caller, &request.service, violations, refuse)?;
        let (Some(key), Some(binding)) = (key, binding) else { return Err(Failure::Internal) };
        let delivery = Delivery {
            key,
            source_service: request.source_service,
            event_type: request.event_type,
            binding,
            redelivered: request.redelivered,
            replay_id,
            cycle: request.cycle,
        };
        debug!(
            service.name = service.metrics.service(),
            queue = delivery.key.queue,
            event.id = %delivery.key.envelope_id,
            "beginning to consume"
        );
        let begun = finished(async move { service.inbox.begin(&delivery).await }).await?;
        let outcome = match begun {
            Begun::Process { attempt, generation, lease_until } => {
                let lease_until = lease_until.map(timestamp);
                v1::begin_consume_response::Outcome::Process(v1::Process { attempt, generation, lease_until })
            }
            Begun::Duplicate(at) => v1::begin_consume_response::Outcome::Duplicate(duplicate(at)),
            Begun::InProgress(after) => {
                let retry_after = Some(duration(after));
                v1::begin_consume_response::Outcome::InProgress(v1::InProgress { retry_after })
            }
            Begun::DeadLetter(death) => v1::begin_consume_response::Outcome::DeadLetter(dead_letter(&death)),
        };
        Ok(v1::BeginConsumeResponse { outcome: Some(outcome) })
    }

    async fn complete(
        &self,
        caller: &Caller,
        request: v1::CompleteConsumeRequest,
    ) -> Result<v1::CompleteConsumeResponse, Failure> {
        let mut violations = Violations::default();
        let key = key(&request.consumer_queue, &request.envelope_id, &mut violations);
        started("generation", request.generation, &mut violations);
        let service = self.judged(caller, &request.service, violations, Failure::Invalid)?;
        let key = key.ok_or(Failure::Internal)?;
        let generation = request.generation;
        let done = finished(async move { service.inbox.complete(&key, generation).await }).await?;
        Ok(v1::CompleteConsumeResponse { duplicate: done.before, processed_at: Some(timestamp(done.at)) })
    }

    async fn fail(
        &self,
        caller: &Caller,
        request: v1::FailConsumeRequest,
    ) -> Result<v1::FailConsumeResponse, Failure> {
        let mut violations = Violations::default();
        let key = key(&request.consumer_queue, &request.envelope_id, &mut violations);
        started("generation", request.generation, &mut violations);
        let kind = match v1::FailKind::try_from(request.kind) {
            Ok(v1::FailKind::Unspecified | v1::FailKind::Error) => FailKind::Error,
            Ok(v1::FailKind::DeadLetter) => FailKind::DeadLetter,
            Ok(v1::FailKind::GivenBack) => FailKind::GivenBack,
            Err(_) => {
                violations.push("kind", "is none that this server knows");
                FailKind::Error
            }
        };
        let service = self.judged(caller, &request.service, violations, Failure::Invalid)?;
        let key = key.ok_or(Failure::Internal)?;
        let (generation, error) = (request.generation, request.error);
        let next = finished(async move { service.inbox.fail(&key, generation, kind, &error).await }).await?;
        let next = match next {
            Next::Retry(failures) => {
                let most_failures = consumption::MOST_FAILURES;
                v1::fail_consume_response::Next::Retry(v1::Retry { failures, most_failures })
            }
            Next::DeadLetter(death) => v1::fail_consume_response::Next::DeadLetter(dead_letter(&death)),
            Next::Duplicate(at) => v1::fail_consume_response::Next::Duplicate(duplicate(at)),
        };
        Ok(v1::FailConsumeResponse { next: Some(next) })
    }

    async fn surface(
        &self,
        caller: &Caller,
        request: v1::SurfaceDeadLetterRequest,
    ) -> Result<v1::SurfaceDeadLetterResponse, Failure> {
        let mut violations = Violations::default();
        let token = Token::parse(&request.token);
        if token.is_none() {
            violations.push("token", "is none that this service has answered with");
        }
        short("exchange", &request.exchange, &mut violations);
        short("routing_key", &request.routing_key, &mut violations);
        let properties = amqp_properties::to_json(request.properties.unwrap_or_default());
        let properties = properties.unwrap_or_else(|field| {
            violations.push(field, format!("must be at most {MOST_DEPTH} deep, and its numbers finite"));
            serde_json::Value::Null
        });
        let service = self.judged(caller, &request.service, violations, Failure::Invalid)?;
        let token = token.ok_or(Failure::Internal)?;
        let letter = Letter {
            body: request.body,
            properties,
            exchange: request.exchange,
            routing_key: request.routing_key,
        };
        debug!(
            service.name = service.metrics.service(),
            queue = token.key.queue,
            event.id = %token.key.envelope_id,
            "surfacing a dead letter"
        );
        let surfaced = finished(async move { service.inbox.surface(&token, letter).await }).await?;
        Ok(v1::SurfaceDeadLetterResponse {
            already_surfaced: surfaced.before,
            dead_lettered_at: Some(timestamp(surfaced.at)),
        })
    }

    async fn get(
        &self,
        caller: &Caller,
        request: v1::GetConsumptionRequest,
    ) -> Result<v1::GetConsumptionResponse, Failure> {
        Services::check_name(&request.service)?;
        let service = self.services.to_read(&caller.read(&request.service)?)?.clone();
        let mut violations = Violations::default();
        let key = key(&request.consumer_queue, &request.envelope_id, &mut violations);
        let Some(key) = key else { return Err(Failure::Invalid(violations)) };
        // A task of its own: a caller's deadline must not cut a conversation with the database in the middle.
        let asked = key.clone();
        let look = async move { service.inbox.look(&asked).await };
        let row = tokio::spawn(look.instrument(Span::current())).await.map_err(|_| Failure::Internal)?;
        let row = row.map_err(Failure::Read)?.ok_or(Failure::Inbox(inbox::Refused::NotFound))?;
        Ok(v1::GetConsumptionResponse { consumption: Some(described(&request.service, &key, row)) })
    }
}

/// A task of its own: what was begun is carried out, whether its caller waits for it or not.
async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, inbox::Refused>> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::spawn(work.instrument(Span::current()));
    done.await.map_err(|_| Failure::Internal)?.map_err(Failure::Inbox)
}

/// Which message of which queue.
fn key(queue: &str, envelope_id: &str, violations: &mut Violations) -> Option<Key> {
    let fits =
        (1..=MOST_QUEUE_BYTES).contains(&queue.len()) && queue.bytes().all(|byte| byte.is_ascii_graphic());
    if !fits {
        violations.push(
            "consumer_queue",
            format!("must be 1 to {MOST_QUEUE_BYTES} printable ASCII characters, without a blank"),
        );
    }
    let envelope_id = uuid("envelope_id", envelope_id, violations)?;
    fits.then(|| Key { envelope_id, queue: queue.to_owned() })
}

fn uuid(field: &str, text: &str, violations: &mut Violations) -> Option<Uuid> {
    let id = envelope::parse_id(text);
    if id.is_none() {
        violations.push(field, "must be a UUID in its hyphenated form");
    }
    id
}

fn short(field: &str, text: &str, violations: &mut Violations) {
    if text.len() > MOST_SHORT_BYTES {
        violations.push(field, format!("must be at most {MOST_SHORT_BYTES} bytes"));
    }
    if text.chars().any(char::is_control) {
        violations.push(field, "must not have control characters");
    }
}

fn started(field: &str, generation: i64, violations: &mut Violations) {
    if generation < 1 {
        violations.push(field, "must be 1 or more: pass what BeginConsume answered");
    }
}

/// What the effect is bound to, and as what it is refused.
fn binding(
    given: Option<v1::begin_consume_request::Binding>,
    violations: &mut Violations,
) -> (Option<Binding>, fn(Violations) -> Failure) {
    use v1::begin_consume_request::Binding as Given;
    match given {
        None => {
            violations.push("binding", "is missing: pass a ticket or a lease");
            (None, Failure::Invalid)
        }
        Some(Given::Ticket(0)) => {
            violations.push("ticket", TICKET_IS_MISSING);
            (None, Failure::TicketMissing)
        }
        Some(Given::Ticket(ticket)) => (Some(Binding::Ticket(ticket)), Failure::Invalid),
        Some(Given::Lease(lease)) => {
            let token = uuid("lease.token", &lease.token, violations);
            let seconds = lease.duration.map(|given| given.seconds as f64 + f64::from(given.nanos) / 1e9);
            let seconds = seconds.filter(|seconds| (SHORTEST_LEASE..=LONGEST_LEASE).contains(seconds));
            if seconds.is_none() {
                violations.push("lease.duration", "must be 1 second to 12 hours");
            }
            let duration = seconds.and_then(|s| std::time::Duration::try_from_secs_f64(s).ok());
            let binding = token.zip(duration).map(|(token, duration)| Binding::Lease { token, duration });
            (binding, Failure::Invalid)
        }
    }
}

macro_rules! answers {
    ($front:expr, $request:expr, $method:ident) => {{
        let (caller, request) = calling($request)?;
        let service = request.service.clone();
        $front.$method(&caller, request).await.map(Response::new).map_err(|failure| answer(failure, &service))
    }};
}

#[tonic::async_trait]
impl InboxService for InboxFront {
    async fn begin_consume(
        &self,
        request: Request<v1::BeginConsumeRequest>,
    ) -> Result<Response<v1::BeginConsumeResponse>, Status> {
        answers!(self, request, begin)
    }

    async fn complete_consume(
        &self,
        request: Request<v1::CompleteConsumeRequest>,
    ) -> Result<Response<v1::CompleteConsumeResponse>, Status> {
        answers!(self, request, complete)
    }

    async fn fail_consume(
        &self,
        request: Request<v1::FailConsumeRequest>,
    ) -> Result<Response<v1::FailConsumeResponse>, Status> {
        answers!(self, request, fail)
    }

    async fn surface_dead_letter(
        &self,
        request: Request<v1::SurfaceDeadLetterRequest>,
    ) -> Result<Response<v1::SurfaceDeadLetterResponse>, Status> {
        answers!(self, request, surface)
    }

    async fn get_consumption(
        &self,
        request: Request<v1::GetConsumptionRequest>,
    ) -> Result<Response<v1::GetConsumptionResponse>, Status> {
        answers!(self, request, get)
    }
}
