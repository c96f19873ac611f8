//! `holdfast.v1.OutboxAdminService`: what an operator sees of an outbox and does about it. Every call goes through
//! [`Admin::act`], so it is in the audit, denied or not, refused or not.

use holdfast_proto::envelope::Violations;
use holdfast_proto::v1;
use holdfast_proto::v1::outbox_admin_service_server::OutboxAdminService;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};
use tracing::warn;

use super::admin::{Acted, Admin};
use super::operating::{Call, Operating};
use super::outbox_admin_list as list;
use super::{Failure, Services, call_id, calling};
use crate::outbox::operator::{Selection, Verb};
use crate::outbox::unresolved;

/// The front of the operator's verbs.
#[derive(Clone)]
pub struct OutboxAdminFront(Operating);

impl OutboxAdminFront {
    /// A front to these services.
    pub fn new(services: Services, admin: Admin) -> Self {
        Self(Operating::new(services, admin))
    }

    async fn many(&self, call: Call, verb: Verb, on: Selection) -> Result<Response<v1::ActedOn>, Status> {
        let named = call.service.clone();
        self.0.act(call, move |service| async move {
            let (done, stopped) = service.operator.act(verb, on).await.map_err(Failure::Operator)?;
            let stopped = stopped.map(|refused| {
                let failure = Failure::Operator(refused);
                warn!(service.name = %named, cause = failure.cause(), "an admin's verb stopped before its end");
                failure.reason()
            });
            Ok(Acted { counts: list::counts(&done, stopped), answer: list::described_done(done) })
        })
        .await
    }
}

fn arguments(mut filter: serde_json::Map<String, Value>, size: i32, token: &str) -> Value {
    if size != 0 {
        filter.insert("page_size".to_owned(), json!(size));
    }
    if !token.is_empty() {
        filter.insert("page_token".to_owned(), json!(token));
    }
    Value::Object(filter)
}

#[tonic::async_trait]
impl OutboxAdminService for OutboxAdminFront {
    async fn list_pending(
        &self,
        request: Request<v1::ListPendingRequest>,
    ) -> Result<Response<v1::ListPendingResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let mut violations = Violations::default();
        let paging = list::paging(request.page_size, &request.page_token, list::MOST_EVENTS, &mut violations);
        let filter = list::pending_filter(request.filter.as_ref(), &mut violations);
        let mut said = request
            .filter
            .as_ref()
            .map(|filter| list::filter_said(&filter.event_type, filter.ordering_key.as_ref()))
            .unwrap_or_default();
        if let Some(why) = request.filter.as_ref().map(v1::PendingFilter::why)
            && why != v1::PendingWhy::Unspecified
        {
            said.insert("why".to_owned(), json!(why.as_str_name()));
        }
        let arguments = arguments(said, request.page_size, &request.page_token);
        let service = request.service;
        let call = Call { id, caller, service, verb: "ListPending", arguments, violations };
        self.0
            .act(call, move |service| async move {
                let operator = service.operator;
                let pause = operator.look_for_pause().await.map_err(Failure::Read)?;
                let page = operator.list_pending(&filter, paging.after, paging.limit).await;
                let answer = list::described_pending(page.map_err(Failure::Read)?, pause);
                Ok(Acted { counts: json!({"events": answer.events.len()}), answer })
            })
            .await
    }

    async fn list_unresolved(
        &self,
        request: Request<v1::ListUnresolvedRequest>,
    ) -> Result<Response<v1::ListUnresolvedResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let mut violations = Violations::default();
        let paging = list::paging(request.page_size, &request.page_token, unresolved::MOST, &mut violations);
        let arguments = arguments(serde_json::Map::new(), request.page_size, &request.page_token);
        let service = request.service;
        let call = Call { id, caller, service, verb: "ListUnresolved", arguments, violations };
        self.0
            .act(call, move |service| async move {
                let page = service.operator.list_unresolved(paging.after, paging.limit).await;
                let answer = list::described_unresolved(page.map_err(Failure::Read)?);
                Ok(Acted { counts: json!({"tickets": answer.tickets.len()}), answer })
            })
            .await
    }

    async fn list_parked(
        &self,
        request: Request<v1::ListParkedRequest>,
    ) -> Result<Response<v1::ListParkedResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let mut violations = Violations::default();
        let paging = list::paging(request.page_size, &request.page_token, list::MOST_EVENTS, &mut violations);
        let filter = list::parked_filter(request.filter.as_ref(), &mut violations);
        let said = request
            .filter
            .as_ref()
            .map(|filter| list::filter_said(&filter.event_type, filter.ordering_key.as_ref()))
            .unwrap_or_default();
        let arguments = arguments(said, request.page_size, &request.page_token);
        let service = request.service;
        let call = Call { id, caller, service, verb: "ListParked", arguments, violations };
        self.0
            .act(call, move |service| async move {
                let page = service.operator.list_parked(&filter, paging.after, paging.limit).await;
                let answer = list::described_parked(page.map_err(Failure::Read)?);
                Ok(Acted { counts: json!({"events": answer.events.len()}), answer })
            })
            .await
    }

    async fn unpark_events(
        &self,
        request: Request<v1::UnparkEventsRequest>,
    ) -> Result<Response<v1::UnparkEventsResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let v1::UnparkEventsRequest { service, ids, filter, continue_token } = request;
        let mut violations = Violations::default();
        let on = list::selection(&ids, filter.as_ref(), &continue_token, &mut violations);
        let arguments = list::asked(&ids, filter.as_ref(), &continue_token, None);
        let call = Call { id, caller, service, verb: "UnparkEvents", arguments, violations };
        let done = self.many(call, Verb::Unpark, on).await?;
        Ok(done.map(|events| v1::UnparkEventsResponse { events: Some(events) }))
    }

    async fn discard_events(
        &self,
        request: Request<v1::DiscardEventsRequest>,
    ) -> Result<Response<v1::DiscardEventsResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let v1::DiscardEventsRequest { service, ids, filter, continue_token, reason } = request;
        let mut violations = Violations::default();
        let on = list::selection(&ids, filter.as_ref(), &continue_token, &mut violations);
        list::reason(&reason, &mut violations);
        let arguments = list::asked(&ids, filter.as_ref(), &continue_token, Some(&reason));
        let call = Call { id, caller, service, verb: "DiscardEvents", arguments, violations };
        let done = self.many(call, Verb::Discard, on).await?;
        Ok(done.map(|events| v1::DiscardEventsResponse { events: Some(events) }))
    }

    async fn retry_now(
        &self,
        request: Request<v1::RetryNowRequest>,
    ) -> Result<Response<v1::RetryNowResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let v1::RetryNowRequest { service, ids, filter, continue_token } = request;
        let mut violations = Violations::default();
        let on = list::selection(&ids, filter.as_ref(), &continue_token, &mut violations);
        let arguments = list::asked(&ids, filter.as_ref(), &continue_token, None);
        let call = Call { id, caller, service, verb: "RetryNow", arguments, violations };
        let done = self.many(call, Verb::Retry, on).await?;
        Ok(done.map(|events| v1::RetryNowResponse { events: Some(events) }))
    }

    async fn pause_drain(
        &self,
        request: Request<v1::PauseDrainRequest>,
    ) -> Result<Response<v1::PauseDrainResponse>, Status> {
        let id = call_id(&request);
        let (caller, v1::PauseDrainRequest { service, reason }) = calling(request)?;
        let mut violations = Violations::default();
        list::reason(&reason, &mut violations);
        // The database takes no U+0000, and who signs tokens chooses what a `sub` is.
        let by = caller.sub().replace('\0', "\u{fffd}");
        let arguments = json!({"reason": reason});
        let call = Call { id, caller, service, verb: "PauseDrain", arguments, violations };
        self.0
            .act(call, move |service| async move {
                let paused = service.operator.pause(&by, &reason).await;
                let (pause, before) = paused.map_err(Failure::Operator)?;
                let pause = Some(list::described_pause(pause));
                let answer = v1::PauseDrainResponse { pause, paused_before: before };
                Ok(Acted { counts: json!({"paused_before": before}), answer })
            })
            .await
    }

    async fn resume_drain(
        &self,
        request: Request<v1::ResumeDrainRequest>,
    ) -> Result<Response<v1::ResumeDrainResponse>, Status> {
        let id = call_id(&request);
        let (caller, v1::ResumeDrainRequest { service }) = calling(request)?;
        let (arguments, violations) = (json!({}), Violations::default());
        let call = Call { id, caller, service, verb: "ResumeDrain", arguments, violations };
        self.0
            .act(call, move |service| async move {
                let ended = service.operator.resume().await.map_err(Failure::Operator)?;
                let counts = json!({"was_paused": ended.is_some()});
                Ok(Acted {
                    counts,
                    answer: v1::ResumeDrainResponse { ended: ended.map(list::described_pause) },
                })
            })
            .await
    }
}
