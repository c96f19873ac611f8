//! `holdfast.v1.OutboxService`: convert, validate, hand over, answer.

use holdfast_proto::envelope::{self, Invalid, Limits, MAX_REQUEST_BYTES, TooLarge, Valid, Violations};
use holdfast_proto::v1;
use holdfast_proto::v1::outbox_service_server::OutboxService;
use prost::Message;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span, debug};
use uuid::Uuid;

use super::inbox_words::described;
use super::{Failure, NotAsked, ServiceHandle, Services, answer, calling, timestamp};
use crate::auth::Caller;
use crate::inbox::Key;
use crate::lookup;
use crate::outbox::{holds, stage::Outcome};

/// Validating a request of this size takes long enough to hold up other calls on the same thread.
const BLOCKING_BYTES: usize = 256 * 1024;

const TICKET_IS_MISSING: &str = "is missing: pass what SELECT holdfast.stage_ticket() returned";

const NEVER_BEGUN: &str = "Nobody has begun it there, as far as the inbox remembers.";

/// A request of either staging RPC.
struct ToStage {
    service: String,
    /// `None`: bound to no transaction.
    ticket: Option<i64>,
    events: Vec<v1::Event>,
    hold: Option<v1::Hold>,
    /// Its size on the wire.
    bytes: usize,
}

/// The outbox's front.
#[derive(Clone)]
pub struct OutboxFront {
    services: Services,
}

impl OutboxFront {
    /// A front to these services.
    pub fn new(services: Services) -> Self {
        Self { services }
    }

    async fn stage_in_tx(
        &self,
        caller: &Caller,
        request: v1::StageInTxRequest,
    ) -> Result<v1::StageInTxResponse, Failure> {
        let bytes = request.encoded_len();
        let to_stage = ToStage {
            service: request.service,
            ticket: Some(request.ticket),
            events: request.events,
            hold: request.hold,
            bytes,
        };
        Ok(v1::StageInTxResponse { events: self.stage(caller, to_stage).await? })
    }

    async fn stage_now(
        &self,
        caller: &Caller,
        request: v1::StageNowRequest,
    ) -> Result<v1::StageNowResponse, Failure> {
        let bytes = request.encoded_len();
        let to_stage =
            ToStage { service: request.service, ticket: None, events: request.events, hold: None, bytes };
        Ok(v1::StageNowResponse { events: self.stage(caller, to_stage).await? })
    }

    async fn stage(&self, caller: &Caller, request: ToStage) -> Result<Vec<v1::StagedEvent>, Failure> {
        let (ticket, bytes) = (request.ticket, request.bytes);
        let hold = request.hold.clone().map(holds::Pair::from);
        let (service, events) = self.judge(caller, request).await?;
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let name = service.metrics.service();
        debug!(service.name = name, event.ids = ?ids, bytes, "staging");
        let outcomes = service.stager.stage(ticket, hold, events, bytes).await.map_err(Failure::Stage)?;
        match ticket {
            Some(ticket) => service.drain.staged(ticket),
            None => service.drain.staged_now(),
        }
        let staged = ids.iter().zip(outcomes).map(|(id, outcome)| v1::StagedEvent {
            id: id.to_string(),
            outcome: match outcome {
                Outcome::Staged => v1::Outcome::Staged,
                Outcome::Duplicate => v1::Outcome::Duplicate,
            }
            .into(),
        });
        Ok(staged.collect())
    }

    /// Everything that is wrong with a request, at once; or whose it is, and its events.
    ///
    /// A name that can be nobody's is a violation beside the others. With any other name the scope comes first: who may not
    /// stage for a service learns neither whether it exists nor what else is wrong.
    async fn judge(&self, caller: &Caller, request: ToStage) -> Result<(ServiceHandle, Vec<Valid>), Failure> {
        let ToStage { service, ticket, events, hold, bytes } = request;
        let mut violations = Violations::default();
        let mut refuse: fn(Violations) -> Failure = Failure::Invalid;
        let service = match Services::check_name(&service) {
            Ok(()) => Some(self.services.to_write(&caller.write(&service)?)?.clone()),
            Err(Failure::Invalid(found)) => {
                violations.merge(found);
                None
            }
            Err(Failure::ReservedService(found)) => {
                violations.merge(found);
                refuse = Failure::ReservedService;
                None
            }
            Err(other) => return Err(other),
        };
        if bytes > MAX_REQUEST_BYTES {
            let limit = MAX_REQUEST_BYTES;
            return Err(Failure::TooLarge(TooLarge { field: "request".into(), actual: bytes, limit }));
        }
        if ticket == Some(0) {
            violations.push("ticket", TICKET_IS_MISSING);
            if service.is_some() {
                refuse = Failure::TicketMissing;
            }
        }
        let judge = move || envelope::validate(&events, hold.as_ref(), &Limits::default());
        let judged = if bytes > BLOCKING_BYTES {
            tokio::task::spawn_blocking(judge).await.map_err(|_| Failure::Internal)?
        } else {
            judge()
        };
        match (service, judged) {
            (Some(service), Ok(events)) if violations.is_empty() => Ok((service, events)),
            (_, Err(Invalid::TooLarge(too_large))) if violations.is_empty() => {
                Err(Failure::TooLarge(too_large))
            }
            (_, judged) => {
                if let Err(Invalid::Violations(more)) = judged {
                    violations.merge(more);
                }
                Err(refuse(violations))
            }
        }
    }

    fn confirm(
        &self,
        caller: &Caller,
        request: &v1::ConfirmStagedRequest,
    ) -> Result<v1::ConfirmStagedResponse, Failure> {
        Services::check_name(&request.service)?;
        let service = self.services.to_write(&caller.write(&request.service)?)?;
        if request.ticket == 0 {
            let mut violations = Violations::default();
            violations.push("ticket", TICKET_IS_MISSING);
            return Err(Failure::TicketMissing(violations));
        }
        service.drain.confirmed(request.ticket);
        Ok(v1::ConfirmStagedResponse {})
    }

    async fn get(
        &self,
        caller: &Caller,
        request: &v1::GetEventRequest,
    ) -> Result<v1::GetEventResponse, Failure> {
        Services::check_name(&request.service)?;
        let service = self.services.to_read(&caller.read(&request.service)?)?.clone();
        let Some(id) = envelope::parse_id(&request.id) else {
            let mut violations = Violations::default();
            violations.push("id", "must be a UUID in its hyphenated form");
            return Err(Failure::Invalid(violations));
        };
        let (desks, refused) = self.services.inboxes(caller);
        let mut at: Vec<v1::EventConsumer> = Vec::new();
        for NotAsked { service, queues, failure } in &refused {
            at.extend(queues.iter().map(|queue| unknown(service, queue.clone(), failure)));
        }
        // A task of its own: a caller's deadline must not cut a conversation with the database in the middle.
        let look =
            async move { tokio::join!(lookup::event(&service.pool, id), lookup::consumers(desks, id)) };
        let found = tokio::spawn(look.instrument(Span::current()));
        let (event, consumers) = found.await.map_err(|_| Failure::Internal)?;
        at.extend(consumers.into_iter().flat_map(|one| at_consumers(id, one)));
        at.sort_by(|a, b| (&a.service, &a.consumer_queue).cmp(&(&b.service, &b.consumer_queue)));
        let begun =
            |one: &v1::EventConsumer| matches!(one.known, Some(v1::event_consumer::Known::Consumption(_)));
        let mut answer = match event.map_err(Failure::Read)? {
            Some(event) => describe(event, &request.service),
            None if at.iter().any(begun) => forgotten(id, &request.service),
            None => return Err(Failure::EventNotFound),
        };
        answer.consumers = at;
        Ok(answer)
    }
}

#[tonic::async_trait]
impl OutboxService for OutboxFront {
    async fn stage_in_tx(
        &self,
        request: Request<v1::StageInTxRequest>,
    ) -> Result<Response<v1::StageInTxResponse>, Status> {
        let (caller, request) = calling(request)?;
        let service = request.service.clone();
        self.stage_in_tx(&caller, request)
            .await
            .map(Response::new)
            .map_err(|failure| answer(failure, &service))
    }

    async fn stage_now(
        &self,
        request: Request<v1::StageNowRequest>,
    ) -> Result<Response<v1::StageNowResponse>, Status> {
        let (caller, request) = calling(request)?;
        let service = request.service.clone();
        self.stage_now(&caller, request).await.map(Response::new).map_err(|failure| answer(failure, &service))
    }

    async fn confirm_staged(
        &self,
        request: Request<v1::ConfirmStagedRequest>,
    ) -> Result<Response<v1::ConfirmStagedResponse>, Status> {
        let (caller, request) = calling(request)?;
        self.confirm(&caller, &request)
            .map(Response::new)
            .map_err(|failure| answer(failure, &request.service))
    }

    async fn get_event(
        &self,
        request: Request<v1::GetEventRequest>,
    ) -> Result<Response<v1::GetEventResponse>, Status> {
        let (caller, request) = calling(request)?;
        self.get(&caller, &request)
            .await
            .map(Response::new)
            .map_err(|failure| answer(failure, &request.service))
    }
}

fn at_consumers(id: Uuid, at: lookup::AtService) -> Vec<v1::EventConsumer> {
    use v1::event_consumer::Known;
    let lookup::AtService { service, rows, desk } = at;
    match rows {
        Ok(rows) => rows
            .into_iter()
            .map(|(queue, row)| {
                let known = match row {
                    Some(row) => {
                        let key = Key { envelope_id: id, queue: queue.clone() };
                        Known::Consumption(Box::new(described(&service, &key, row)))
                    }
                    None => Known::NeverBegun(v1::NeverBegun { why: NEVER_BEGUN.to_owned() }),
                };
                v1::EventConsumer { service: service.clone(), consumer_queue: queue, known: Some(known) }
            })
            .collect(),
        Err(error) => {
            debug!(service.name = service, %error, "a consumer's inbox could not be asked about an event");
            let refused = Failure::Read(error);
            desk.queues().into_iter().map(|queue| unknown(&service, queue, &refused)).collect()
        }
    }
}

fn unknown(service: &str, consumer_queue: String, why: &Failure) -> v1::EventConsumer {
    let (reason, message) = why.said_of(service);
    let known = v1::event_consumer::Known::NotAsked(v1::NotAsked { reason: reason.into(), message });
    v1::EventConsumer { service: service.to_owned(), consumer_queue, known: Some(known) }
}

fn forgotten(id: Uuid, service: &str) -> v1::GetEventResponse {
    v1::GetEventResponse {
        id: id.to_string(),
        service: service.to_owned(),
        state: v1::EventState::Forgotten.into(),
        why: "The outbox has no such event (any more): pruned after it was published, or another service's. A consumer has begun it."
            .to_owned(),
        ..v1::GetEventResponse::default()
    }
}

fn describe(event: lookup::Event, service: &str) -> v1::GetEventResponse {
    let state = match event.state() {
        lookup::State::Unresolved => v1::EventState::Unresolved,
        lookup::State::Held => v1::EventState::Held,
        lookup::State::Parked => v1::EventState::Parked,
        lookup::State::InFlight => v1::EventState::InFlight,
        lookup::State::Pending => v1::EventState::Pending,
        lookup::State::Published => v1::EventState::Published,
    };
    let hold = event
        .hold()
        .map(|(operation_id, generation)| v1::Hold { operation_id: operation_id.to_owned(), generation });
    v1::GetEventResponse {
        id: event.id.to_string(),
        service: service.to_owned(),
        state: state.into(),
        why: event.why().into_owned(),
        r#type: event.event_type,
        ordering_key: event.ordering_key,
        seq: event.seq,
        attempts: event.attempts,
        last_error: event.last_error.unwrap_or_default(),
        created_at: event.created_at.map(timestamp),
        resolved_at: event.resolved_at.map(timestamp),
        published_at: event.published_at.map(timestamp),
        next_attempt_at: event.next_attempt_at.map(timestamp),
        claimed_at: event.claimed_at.map(timestamp),
        hold,
        consumers: Vec::new(),
    }
}
