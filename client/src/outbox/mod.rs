//! The outbox: events bound to the caller's own database transaction.
//!
//! ```text
//! begin ─▶ own statements ─▶ stage_in_tx (ticket, StageInTx) ─▶ COMMIT: delivered
//!                                                            └▶ ROLLBACK, or the caller died: never existed
//! ```
//!
//! Guarantees: an event that was staged is delivered if, and only if, the transaction commits; a call ends within its
//! deadline, retries included; a retry is the same request. Does not: decide anything by time, or commit for the caller
//! before it asks. Staging keeps the caller's transaction (and its locks) open for the length of a call: do it last.
//! `publish_in_tx` is the way without the server, [`Outbox::stage_now`] the one without a transaction, and [`Outbox::hold`] keeps
//! events back until an operation of several services is decided. The parts that run in
//! that transaction need the feature `sqlx`; without it take the ticket with your own driver and use [`Outbox::stage`].
//! Design: section 3.

mod event;
mod hold;
#[cfg(feature = "sqlx")]
mod publish;
mod ticket;
#[cfg(feature = "sqlx")]
mod tx;

use std::time::Duration;

use holdfast_proto::envelope::{self, MAX_REQUEST_BYTES, TooLarge};
use holdfast_proto::v1;
use holdfast_proto::v1::outbox_service_client::OutboxServiceClient;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::Error;
use crate::call::call;
use crate::connection::{Deadlines, Transport};
use crate::rpc::{self, Rpc};

pub use event::{EventBuilder, event};
pub use hold::Hold;
#[cfg(feature = "sqlx")]
pub use publish::{PublishError, publish_in_tx};
pub use ticket::Ticket;
#[cfg(feature = "sqlx")]
pub use tx::{StageError, TicketError, ticket};

/// A service's way to its outbox through the server; [`crate::Holdfast::outbox`] makes one. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Outbox {
    service: String,
    transport: Transport,
    client: OutboxServiceClient<Transport>,
    deadlines: Deadlines,
}

/// A service's name that cannot be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("service {name:?} {problem}")]
pub struct ServiceNameError {
    name: String,
    problem: &'static str,
}

impl ServiceNameError {
    /// The name as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The name, if it can be one.
pub(crate) fn checked_service_name(service: String) -> Result<String, ServiceNameError> {
    match envelope::service_name_problem(&service) {
        Some(problem) => Err(ServiceNameError { name: service, problem }),
        None => Ok(service),
    }
}

/// What was staged, and for which transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// The ticket that the events are bound to. More events of the same transaction may be staged under it, with
    /// [`Outbox::stage`] and without another round trip to the database.
    pub ticket: Ticket,
    /// One entry for each event, in their order: its id, and whether it was written now or was there already.
    pub events: Vec<v1::StagedEvent>,
}

impl Outbox {
    pub(crate) fn new(
        transport: Transport,
        deadlines: Deadlines,
        service: String,
    ) -> Result<Self, ServiceNameError> {
        let service = checked_service_name(service)?;
        let client = OutboxServiceClient::new(transport.clone())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_REQUEST_BYTES);
        Ok(Self { service, transport, client, deadlines })
    }

    /// Sets the time that one call of this handle may take, retries and their waits included. Default: the connection's
    /// ([`crate::Builder::deadline`]).
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadlines.call = deadline;
        self
    }

    /// The service's name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Stages `events` for a ticket that the caller holds, whose transaction must be open: 1 to 1,000 events, all of them
    /// or none, in this order.
    ///
    /// An event without an id gets a version 7 one before anything is sent. UNAVAILABLE, ABORTED with a `RetryInfo` and
    /// lost connections are sent again, at most 5 attempts, with jittered waits of at least what the server asked for,
    /// within the deadline. Not among the 5, and without a wait: one more after a refused access token whose source has
    /// another one, and one for each replica that could not be connected to while another may be there. An event that an earlier attempt has written is then answered with
    /// `OUTCOME_DUPLICATE`.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `StageInTx` in the contract. A request over 8 MiB is not sent
    /// (`ResourceExhausted`, `TooLarge`).
    ///
    /// ```no_run
    /// use holdfast_client::outbox::{Outbox, Ticket, event};
    ///
    /// // `ticket`: what `SELECT holdfast.stage_ticket()` returned in the open transaction, over any driver.
    /// # async fn example(outbox: Outbox, ticket: i64) -> Result<(), holdfast_client::Error> {
    /// let staged = outbox.stage(Ticket::from(ticket), [event("order.placed").subject("o-1")]).await?;
    /// // … COMMIT, and then, if the events are in a hurry:
    /// outbox.confirm_staged(staged.ticket).await?;
    /// # Ok(()) }
    /// ```
    pub async fn stage<E: Into<v1::Event>>(
        &self,
        ticket: Ticket,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, Error> {
        self.stage_with(ticket, events, None).await
    }

    async fn stage_with<E: Into<v1::Event>>(
        &self,
        ticket: Ticket,
        events: impl IntoIterator<Item = E>,
        hold: Option<v1::Hold>,
    ) -> Result<Staged, Error> {
        let service = self.service.clone();
        let request = v1::StageInTxRequest { service, ticket: ticket.get(), events: with_ids(events), hold };
        let answer = self
            .write(rpc::STAGE_IN_TX, &request, |mut client, request| async move {
                client.stage_in_tx(request).await
            })
            .await?;
        Ok(Staged { ticket, events: answer.events })
    }

    /// Stages `events` bound to **no** transaction: 1 to 1,000 of them, all or none, in this order. They are delivered
    /// from then on, whatever becomes of the caller and of any transaction of its own; if a commit of the caller's must
    /// decide, use `stage_in_tx`.
    ///
    /// Answers one entry for each event, in their order: its id, and whether it was written now or was there already.
    /// The answer means that the events are committed and flushed. Sent again by itself as [`Self::stage`] does.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `StageNow` in the contract. Unless [`Error::is_certainly_not_applied`], the events
    /// may have been staged: call again with the same ids.
    ///
    /// ```no_run
    /// use holdfast_client::outbox::{Outbox, event};
    ///
    /// # async fn example(outbox: Outbox) -> Result<(), holdfast_client::Error> {
    /// outbox.stage_now([event("report.ready").subject("r-1")]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn stage_now<E: Into<v1::Event>>(
        &self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<v1::StagedEvent>, Error> {
        let request = v1::StageNowRequest { service: self.service.clone(), events: with_ids(events) };
        let answer =
            self.write(rpc::STAGE_NOW, &request, |mut client, request| async move {
                client.stage_now(request).await
            })
            .await?;
        Ok(answer.events)
    }

    /// Says that the transaction of `ticket` has ended, so that its events go out now and not at the server's next look.
    ///
    /// A hint: it carries no outcome and is never believed, the database is asked. Tried for at most 2 s
    /// ([`crate::Builder::hint_deadline`]).
    ///
    /// # Errors
    /// [`Error`], and none has any effect on the events: it may be ignored.
    ///
    /// ```no_run
    /// # use holdfast_client::outbox::{Outbox, Staged};
    /// # async fn example(outbox: Outbox, staged: Staged) {
    /// // After a COMMIT of your own; commit_and_confirm does both.
    /// if let Err(error) = outbox.confirm_staged(staged.ticket).await {
    ///     eprintln!("the events go out a moment later: {error}");
    /// }
    /// # }
    /// ```
    pub async fn confirm_staged(&self, ticket: Ticket) -> Result<(), Error> {
        let request = v1::ConfirmStagedRequest { service: self.service.clone(), ticket: ticket.get() };
        let within = self.deadlines.hint.min(self.deadlines.call);
        let send = self.send(|mut client, request| async move { client.confirm_staged(request).await });
        call(&self.transport, rpc::CONFIRM_STAGED, within, &request, send).await.map(|_| ())
    }

    /// Where the event is: its state, what it waits for, and its history. Sent again by itself as [`Self::stage`] does.
    ///
    /// # Errors
    /// [`Error`]; `NotFound` with `EventNotFound` for an event that was never staged here, was rolled back, discarded or
    /// pruned.
    ///
    /// ```no_run
    /// use holdfast_client::{Error, outbox::Outbox, v1::ErrorReason};
    ///
    /// # async fn example(outbox: Outbox, id: uuid::Uuid) -> Result<(), Error> {
    /// match outbox.get_event(id).await {
    ///     Ok(event) => println!("{}: {}", event.state().as_str_name(), event.why),
    ///     Err(error) if error.reason() == Some(ErrorReason::EventNotFound) => println!("not there"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn get_event(&self, id: Uuid) -> Result<v1::GetEventResponse, Error> {
        let request = v1::GetEventRequest { service: self.service.clone(), id: id.to_string() };
        let send = self.send(|mut client, request| async move { client.get_event(request).await });
        call(&self.transport, rpc::GET_EVENT, self.deadlines.call, &request, send).await
    }

    /// A call that writes: not sent if the server would refuse it for its size.
    async fn write<M, A, F>(
        &self,
        rpc: Rpc,
        request: &M,
        send: impl Fn(OutboxServiceClient<Transport>, Request<M>) -> F,
    ) -> Result<A, Error>
    where
        M: prost::Message + Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let actual = request.encoded_len();
        if actual > MAX_REQUEST_BYTES {
            let limit = MAX_REQUEST_BYTES;
            return Err(Error::too_large(&TooLarge { field: "request".to_owned(), actual, limit }));
        }
        call(&self.transport, rpc, self.deadlines.call, request, self.send(send)).await
    }

    /// Gives each attempt a client of its own.
    fn send<M, F>(
        &self,
        send: impl Fn(OutboxServiceClient<Transport>, Request<M>) -> F,
    ) -> impl Fn(Request<M>) -> F {
        move |request| send(self.client.clone(), request)
    }
}

/// Whatever is sent again is the same request, ids included.
fn with_ids<E: Into<v1::Event>>(events: impl IntoIterator<Item = E>) -> Vec<v1::Event> {
    let mut events: Vec<v1::Event> = events.into_iter().map(Into::into).collect();
    for event in events.iter_mut().filter(|event| event.id.is_empty()) {
        event.id = Uuid::now_v7().to_string();
    }
    events
}
