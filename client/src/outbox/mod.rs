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
//! [`publish_in_tx`] is the way without the server, [`Outbox::stage_now`] the one without a transaction. Design: section 3.

mod event;
mod publish;
mod retry;
mod tx;

use std::time::Duration;

use holdfast_proto::envelope::{self, MAX_REQUEST_BYTES, TooLarge};
use holdfast_proto::v1;
use holdfast_proto::v1::outbox_service_client::OutboxServiceClient;
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use uuid::Uuid;

use crate::Error;

pub use event::{EventBuilder, event};
pub use publish::{PublishError, publish_in_tx};
pub use tx::{Ticket, TicketError, ticket};

/// A call's time, retries included: the caller's locks are held meanwhile. The server itself gives up on a database
/// after 20 s.
const DEADLINE: Duration = Duration::from_secs(10);

/// A hint that takes longer is worth nothing: the server looks by itself.
const HINT_DEADLINE: Duration = Duration::from_secs(2);

/// Several attempts fit into [`DEADLINE`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer that vanished is noticed after both together, before [`DEADLINE`]; else a call would wait for TCP to give up.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Far enough away to be "never", and no overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A service's way to its outbox through the server. Cheap to clone; the clones share one connection, which is made when
/// it is needed and again after it broke.
#[derive(Debug, Clone)]
pub struct Outbox {
    service: String,
    client: OutboxServiceClient<Channel>,
    deadline: Duration,
}

/// Why there is no [`Outbox`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The service's name breaks the rules of `[a-z][a-z0-9-]{0,62}`, or is reserved.
    #[error("service {0}")]
    Service(&'static str),
    /// The address does not begin with `http://`. TLS needs a channel of the caller's own: [`Outbox::with_channel`].
    #[error("the address must be http://host:port")]
    Scheme,
    /// The address is none.
    #[error("the address cannot be used: {0}")]
    Address(#[from] tonic::transport::Error),
}

/// What was staged, and for which transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// The ticket that the events are bound to.
    pub ticket: Ticket,
    /// One entry for each event, in their order: its id, and whether it was written now or was there already.
    pub events: Vec<v1::StagedEvent>,
}

/// Why [`Outbox::stage_in_tx`] failed. Roll the transaction back: whatever was written goes with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// No ticket could be taken; the server was not called.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The server refused, or could not be reached.
    #[error(transparent)]
    Call(#[from] Error),
}

impl StageError {
    /// Whether surely nothing was staged. See [`Error::is_certainly_not_applied`].
    #[must_use]
    pub fn is_certainly_not_applied(&self) -> bool {
        match self {
            Self::Ticket(_) => true,
            Self::Call(error) => error.is_certainly_not_applied(),
        }
    }
}

impl Outbox {
    /// An outbox for `service` (its name in the server's configuration) at `address`, such as `http://localhost:50551`.
    ///
    /// Connects at the first call, not here, so a service starts while Holdfast is away. Dead connections are noticed
    /// within 8 s. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`]: the service's name or the address cannot be right.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = holdfast_client::outbox::Outbox::connect("http://localhost:50551", "orders")?;
    /// # Ok(()) }
    /// ```
    pub fn connect(address: impl Into<String>, service: impl Into<String>) -> Result<Self, ConnectError> {
        let endpoint = Endpoint::from_shared(address.into())?;
        if endpoint.uri().scheme_str() != Some("http") {
            return Err(ConnectError::Scheme);
        }
        let endpoint = endpoint
            .user_agent(concat!("holdfast-client/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let service = service.into();
        match envelope::service_name_problem(&service) {
            Some(problem) => Err(ConnectError::Service(problem)),
            None => Ok(Self::with_channel(endpoint.connect_lazy(), service)),
        }
    }

    /// An outbox for `service` over a channel of the caller's own: TLS, several replicas, other time-outs. The name is
    /// judged by the server.
    #[must_use]
    pub fn with_channel(channel: Channel, service: impl Into<String>) -> Self {
        let client = OutboxServiceClient::new(channel)
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_REQUEST_BYTES);
        Self { service: service.into(), client, deadline: DEADLINE }
    }

    /// Sets the time that one call may take, retries and their waits included. Default: 10 s.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The service's name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Takes a ticket in the transaction that is open on `conn` and stages `events` for it: 1 to 1,000 events, all of
    /// them or none, in this order.
    ///
    /// They are delivered if, and only if, that transaction commits. The server's answer means that they are in the
    /// database. Sent again by itself as [`Self::stage`] does.
    ///
    /// # Errors
    /// [`StageError`]. Roll back then. Dropping the future is no error, but leaves open whether the events were staged;
    /// here, too, COMMIT or ROLLBACK decides.
    ///
    /// ```no_run
    /// use holdfast_client::outbox::{Outbox, event};
    ///
    /// # async fn example(pool: sqlx::PgPool, outbox: Outbox) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// let staged = outbox.stage_in_tx(&mut tx, [event("order.placed").subject("o-1")]).await?;
    /// outbox.commit_and_confirm(tx, &staged).await?;
    /// # Ok(()) }
    /// ```
    pub async fn stage_in_tx<E: Into<v1::Event>>(
        &self,
        conn: &mut PgConnection,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, StageError> {
        let events: Vec<v1::Event> = events.into_iter().map(Into::into).collect();
        let ticket = ticket(conn).await?;
        Ok(self.stage(ticket, events).await?)
    }

    /// Stages `events` for a ticket that the caller holds, whose transaction must be open.
    ///
    /// An event without an id gets a version 7 one before anything is sent. UNAVAILABLE, ABORTED with a `RetryInfo` and
    /// lost connections are sent again, at most 5 attempts in all, with jittered waits of at least what the server asked
    /// for, within the deadline; an event that an earlier attempt has written is then answered with
    /// `OUTCOME_DUPLICATE`.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `StageInTx` in the contract. A request over 8 MiB is not sent
    /// (`ResourceExhausted`, `TooLarge`).
    pub async fn stage<E: Into<v1::Event>>(
        &self,
        ticket: Ticket,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, Error> {
        let events = with_ids(events);
        let request =
            v1::StageInTxRequest { service: self.service.clone(), ticket: ticket.get(), events, hold: None };
        let answer = self
            .repeat(&request, |mut client, request| async move { client.stage_in_tx(request).await })
            .await?;
        Ok(Staged { ticket, events: answer.events })
    }

    /// Stages `events` bound to **no** transaction: 1 to 1,000 of them, all or none, in this order. They are delivered
    /// from then on, whatever becomes of the caller and of any transaction of its own; if a commit of the caller's must
    /// decide, use [`Self::stage_in_tx`].
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
        let answer = self
            .repeat(&request, |mut client, request| async move { client.stage_now(request).await })
            .await?;
        Ok(answer.events)
    }

    /// Calls until it is answered, for as long and as often as a stage may be sent again.
    async fn repeat<M, A, F>(
        &self,
        request: &M,
        call: impl Fn(OutboxServiceClient<Channel>, tonic::Request<M>) -> F,
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
        let deadline = at(self.deadline);
        let mut all_certain = true;
        let mut failures = 0;
        loop {
            let call = call(self.client.clone(), message(request.clone(), deadline));
            let error = match until(deadline, call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            failures += 1;
            all_certain &= error.is_certainly_not_applied();
            match retry::wait(&error, failures, remaining(deadline), rand::random()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None if all_certain => return Err(error),
                None => return Err(error.after_an_unclear_attempt()),
            }
        }
    }

    /// Says that the transaction of `ticket` has ended, so that its events go out now and not at the server's next look.
    ///
    /// A hint: it carries no outcome and is never believed, the database is asked. Not sent again by itself.
    ///
    /// # Errors
    /// [`Error`], and none has any effect on the events: it may be ignored.
    pub async fn confirm_staged(&self, ticket: Ticket) -> Result<(), Error> {
        self.confirm(ticket, self.deadline).await
    }

    /// Commits `tx`, then sends the hint of [`Self::confirm_staged`] from a task of its own, which ends within 2 s. The
    /// caller does not wait for it, and its failure is never an error: the server finds out by itself.
    ///
    /// For a transaction that staged several times, send the hint for the other tickets with [`Self::confirm_staged`],
    /// or leave them to the server.
    ///
    /// # Errors
    /// The commit's own. As ever with a commit, a lost connection leaves its outcome open: the events are delivered
    /// exactly if it went through. The hint is sent all the same.
    ///
    /// PostgreSQL answers the COMMIT of a transaction in which a statement has failed with a rollback and no error, and
    /// the driver reports Ok. Do not commit after an error.
    pub async fn commit_and_confirm(
        &self,
        tx: Transaction<'_, Postgres>,
        staged: &Staged,
    ) -> Result<(), sqlx::Error> {
        let committed = tx.commit().await;
        let (outbox, ticket) = (self.clone(), staged.ticket);
        tokio::spawn(async move {
            // A lost hint costs the events a moment, nothing else.
            let _ = outbox.confirm(ticket, HINT_DEADLINE).await;
        });
        committed
    }

    /// Where the event is: its state, what it waits for, and its history. Not sent again by itself.
    ///
    /// # Errors
    /// [`Error`]; `NotFound` with `EventNotFound` for an event that was never staged here, was rolled back, discarded or
    /// pruned.
    pub async fn get_event(&self, id: Uuid) -> Result<v1::GetEventResponse, Error> {
        let deadline = at(self.deadline);
        let request = v1::GetEventRequest { service: self.service.clone(), id: id.to_string() };
        let mut client = self.client.clone();
        until(deadline, client.get_event(message(request, deadline))).await
    }

    async fn confirm(&self, ticket: Ticket, within: Duration) -> Result<(), Error> {
        let deadline = at(within);
        let request = v1::ConfirmStagedRequest { service: self.service.clone(), ticket: ticket.get() };
        let mut client = self.client.clone();
        until(deadline, client.confirm_staged(message(request, deadline))).await.map(|_| ())
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

fn at(within: Duration) -> Instant {
    Instant::now() + within.min(FOR_EVER)
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A request that tells the server what time is left, so that nobody works for a caller that is gone.
fn message<T>(message: T, deadline: Instant) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(remaining(deadline));
    request
}

async fn until<T>(
    deadline: Instant,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout_at(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        // The server keeps the same deadline and may be the first to notice; it then answers CANCELLED.
        Ok(Err(status)) if status.code() == tonic::Code::Cancelled && remaining(deadline).is_zero() => {
            Err(Error::deadline_exceeded())
        }
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(Error::deadline_exceeded()),
    }
}
