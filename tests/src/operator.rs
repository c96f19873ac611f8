//! The generated client of an outbox's operators, with the short words of tests.

use std::net::SocketAddr;

use holdfast_proto::v1::{
    ActedOn, DiscardEventsRequest, DrainPause, EventFilter, ListPendingRequest, PauseDrainRequest,
    PauseDrainResponse, PendingEvent, PendingFilter, ResumeDrainRequest, RetryNowRequest, SkipWhy,
    UnparkEventsRequest, outbox_admin_service_client::OutboxAdminServiceClient,
};
use tonic::Status;

use crate::{
    auth::{self, Authenticated, Bearer},
    client::channel,
    scene::{SERVICE, Scene, Server},
};

/// All events.
pub fn all() -> EventFilter {
    EventFilter { all: true, ..EventFilter::default() }
}

/// Those of a type.
pub fn of_type(event_type: &str) -> EventFilter {
    EventFilter { event_type: event_type.to_owned(), ..EventFilter::default() }
}

/// What was skipped, by id.
pub fn skipped(done: &ActedOn) -> Vec<(&str, SkipWhy)> {
    done.skipped_events.iter().map(|one| (one.id.as_str(), one.why())).collect()
}

/// A client of one server's operators.
#[derive(Debug, Clone)]
pub struct Operator {
    /// The generated client, for everything that is not here.
    pub raw: OutboxAdminServiceClient<Authenticated>,
}

impl Operator {
    /// With this token.
    ///
    /// # Panics
    /// When the address is none.
    pub fn with_token(address: SocketAddr, token: &str) -> Self {
        Self { raw: OutboxAdminServiceClient::new(Bearer::new(token).over(channel(address))) }
    }

    /// Of a scene's server: `olga`, who may operate the scene's service and nothing else.
    ///
    /// # Panics
    /// As [`Operator::with_token`].
    pub fn of<S: Server>(scene: &Scene<S>) -> Self {
        Self::with_token(scene.server.address(), &auth::token_of("olga", &format!("{SERVICE}.admin")))
    }

    /// All that is not out, page by page.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn pending(&self, filter: PendingFilter, page_size: i32) -> Vec<PendingEvent> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let filter = Some(filter.clone());
            let request = ListPendingRequest { service: SERVICE.to_owned(), filter, page_size, page_token };
            let page = self.raw.clone().list_pending(request).await.expect("list").into_inner();
            assert!(page_size == 0 || page.events.len() <= usize::try_from(page_size).unwrap());
            all.extend(page.events);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }

    /// Unparks by ids.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn unpark(&self, ids: &[&str]) -> Result<ActedOn, Status> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let request = UnparkEventsRequest { service: SERVICE.to_owned(), ids, ..Default::default() };
        Ok(self.raw.clone().unpark_events(request).await?.into_inner().events.expect("what was done"))
    }

    /// Unparks by a filter, from where an earlier call stopped.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn unpark_all(&self, filter: EventFilter, from: &str) -> Result<ActedOn, Status> {
        let request = UnparkEventsRequest {
            service: SERVICE.to_owned(),
            ids: Vec::new(),
            filter: Some(filter),
            continue_token: from.to_owned(),
        };
        Ok(self.raw.clone().unpark_events(request).await?.into_inner().events.expect("what was done"))
    }

    /// Discards by a filter.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn discard_all(&self, filter: EventFilter, reason: &str) -> Result<ActedOn, Status> {
        let request = DiscardEventsRequest {
            service: SERVICE.to_owned(),
            filter: Some(filter),
            reason: reason.to_owned(),
            ..Default::default()
        };
        Ok(self.raw.clone().discard_events(request).await?.into_inner().events.expect("what was done"))
    }

    /// Makes due by ids.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn retry(&self, ids: &[&str]) -> Result<ActedOn, Status> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let request = RetryNowRequest { service: SERVICE.to_owned(), ids, ..Default::default() };
        Ok(self.raw.clone().retry_now(request).await?.into_inner().events.expect("what was done"))
    }

    /// Makes due by a filter.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn retry_all(&self, filter: EventFilter) -> Result<ActedOn, Status> {
        let request =
            RetryNowRequest { service: SERVICE.to_owned(), filter: Some(filter), ..Default::default() };
        Ok(self.raw.clone().retry_now(request).await?.into_inner().events.expect("what was done"))
    }

    /// Makes due by a filter, call by call to its end; how many. A drain that is busy is tried again.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn retry_whole(&self, filter: EventFilter) -> i64 {
        let (mut acted, mut continue_token) = (0, String::new());
        loop {
            let request = RetryNowRequest {
                service: SERVICE.to_owned(),
                ids: Vec::new(),
                filter: Some(filter.clone()),
                continue_token: continue_token.clone(),
            };
            match self.raw.clone().retry_now(request).await {
                Ok(answer) => {
                    let done = answer.into_inner().events.expect("what was done");
                    assert_eq!(done.complete, done.continue_token.is_empty());
                    acted += done.acted;
                    if done.complete {
                        return acted;
                    }
                    continue_token = done.continue_token;
                }
                Err(status) => assert_eq!(status.code(), tonic::Code::Aborted, "{status:?}"),
            }
        }
    }

    /// Pauses the drain.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn pause(&self, reason: &str) -> Result<PauseDrainResponse, Status> {
        let request = PauseDrainRequest { service: SERVICE.to_owned(), reason: reason.to_owned() };
        Ok(self.raw.clone().pause_drain(request).await?.into_inner())
    }

    /// Resumes the drain; gives the pause that this ended.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn resume(&self) -> Result<Option<DrainPause>, Status> {
        let request = ResumeDrainRequest { service: SERVICE.to_owned() };
        Ok(self.raw.clone().resume_drain(request).await?.into_inner().ended)
    }
}
