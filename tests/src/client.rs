//! The generated client with the few words that tests say often, and the client library's [`outbox`].

use std::net::SocketAddr;

use holdfast_client::{Holdfast, inbox::Inbox, outbox::Outbox, token::Token};
use holdfast_proto::v1::{
    ConfirmStagedRequest, Event, EventState, GetEventRequest, GetEventResponse, Outcome, StageInTxRequest,
    StageNowRequest, StagedEvent, event::Data, outbox_service_client::OutboxServiceClient,
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use uuid::Uuid;

use crate::{
    auth::{self, Authenticated, Bearer},
    wait,
};

/// A client of one server, for one service.
#[derive(Debug, Clone)]
pub struct Client {
    /// The generated client, for everything that is not here.
    pub raw: OutboxServiceClient<Authenticated>,
    service: String,
}

impl Client {
    /// For a server's address, with every scope of the service. Connects at the first call, and again after a connection was
    /// lost.
    ///
    /// # Panics
    /// When the address is none.
    pub fn new(address: SocketAddr, service: &str) -> Self {
        Self::with_token(address, service, &auth::token(&auth::all_of(service)))
    }

    /// The same with this token.
    ///
    /// # Panics
    /// When the address is none.
    pub fn with_token(address: SocketAddr, service: &str, token: &str) -> Self {
        let channel = Bearer::new(token).over(channel(address));
        Self { raw: OutboxServiceClient::new(channel), service: service.to_owned() }
    }

    /// Stages events under a ticket.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_stage(&self, ticket: i64, events: &[Event]) -> Result<Vec<StagedEvent>, Status> {
        let request =
            StageInTxRequest { service: self.service.clone(), ticket, events: events.to_vec(), hold: None };
        Ok(self.raw.clone().stage_in_tx(request).await?.into_inner().events)
    }

    /// Stages events that are new.
    ///
    /// # Panics
    /// When the server refuses, or knows one of them.
    pub async fn stage(&self, ticket: i64, events: &[Event]) {
        let staged = self.try_stage(ticket, events).await.expect("stage");
        let outcomes: Vec<Outcome> = staged.iter().map(StagedEvent::outcome).collect();
        assert_eq!(outcomes, vec![Outcome::Staged; events.len()]);
    }

    /// Stages events bound to no transaction.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_stage_now(&self, events: &[Event]) -> Result<Vec<StagedEvent>, Status> {
        let request = StageNowRequest { service: self.service.clone(), events: events.to_vec() };
        Ok(self.raw.clone().stage_now(request).await?.into_inner().events)
    }

    /// Stages events that are new, bound to no transaction.
    ///
    /// # Panics
    /// When the server refuses, or knows one of them.
    pub async fn stage_now(&self, events: &[Event]) {
        let staged = self.try_stage_now(events).await.expect("stage now");
        let outcomes: Vec<Outcome> = staged.iter().map(StagedEvent::outcome).collect();
        assert_eq!(outcomes, vec![Outcome::Staged; events.len()]);
    }

    /// Says that the ticket's transaction has ended.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn confirm(&self, ticket: i64) {
        let request = ConfirmStagedRequest { service: self.service.clone(), ticket };
        self.raw.clone().confirm_staged(request).await.expect("confirm");
    }

    /// Where an event is.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn get(&self, id: &str) -> Result<GetEventResponse, Status> {
        let request = GetEventRequest { service: self.service.clone(), id: id.to_owned() };
        Ok(self.raw.clone().get_event(request).await?.into_inner())
    }

    /// Waits until an event is in a state.
    pub async fn wait_for_state(&self, id: &str, state: EventState) -> GetEventResponse {
        wait::until(&format!("event {id} to be {}", state.as_str_name()), wait::LONG, || async {
            match self.get(id).await {
                Ok(event) if event.state() == state => Ok(event),
                Ok(event) => Err(format!("{}: {}", event.state().as_str_name(), event.why)),
                Err(status) => Err(status.to_string()),
            }
        })
        .await
    }
}

/// A connection to a server, made at the first call.
///
/// # Panics
/// When the address is none.
pub fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy()
}

/// The client library's outbox of a service, at a server's address.
///
/// # Panics
/// When address or name are none.
pub fn outbox(address: SocketAddr, service: &str) -> Outbox {
    holdfast(address, service).outbox(service).expect("a service's name")
}

/// The client library's inbox of a service, at a server's address.
///
/// # Panics
/// When address or name are none.
pub fn inbox(address: SocketAddr, service: &str) -> Inbox {
    holdfast(address, service).inbox(service).expect("a service's name")
}

fn holdfast(address: SocketAddr, service: &str) -> Holdfast {
    let token = Token::new(auth::token(&auth::all_of(service))).expect("a token");
    let holdfast = Holdfast::builder().endpoint(format!("http://{address}")).token(token).build();
    holdfast.expect("an address")
}

/// A new event of a type, without a key.
pub fn event(event_type: &str) -> Event {
    Event {
        id: Uuid::now_v7().to_string(),
        r#type: event_type.to_owned(),
        data: Some(Data::Json(r#"{"n":1}"#.to_owned())),
        ..Event::default()
    }
}

/// A new event of a type and an ordering key.
pub fn keyed(event_type: &str, key: &str) -> Event {
    Event { ordering_key: Some(key.to_owned()), ..event(event_type) }
}

/// The ids of events.
pub fn ids(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.id.clone()).collect()
}
