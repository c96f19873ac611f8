//! The inbox: a message takes effect once, however often the broker delivers it.
//!
//! ```text
//! delivery ─▶ begin ─▶ process ─▶ handler ─▶ COMMIT (ticket), complete (lease) ─▶ ack
//!                 │                      └─▶ error: ROLLBACK, fail ─▶ again, or as a dead letter
//!                 ├─▶ duplicate ─▶ ack
//!                 ├─▶ in progress: neither run nor ack, come again
//!                 └─▶ dead letter ─▶ surface_dead_letter ─▶ ack
//! ```
//!
//! Guarantees: a call ends within its deadline, retries included; what is sent again is the same request. With a ticket, or in process
//! ([`handle_in_tx`]), the effect and the mark are one commit. Does not: ack. `Consumer` (feature `lapin`) does all
//! of the above for a queue. Design: section 6.

mod delivery;
#[cfg(feature = "sqlx")]
pub(crate) mod in_process;

use std::time::Duration;

use holdfast_proto::consumption;
use holdfast_proto::v1;
use holdfast_proto::v1::inbox_service_client::InboxServiceClient;
use uuid::Uuid;

use crate::Error;
use crate::call::call;
use crate::connection::{Deadlines, Transport};
use crate::outbox::{ServiceNameError, Ticket, checked_service_name};
use crate::rpc::{self, Rpc};

pub use delivery::{Begun, Delivery, HandlerError, Lease, Next};
#[cfg(feature = "sqlx")]
pub use in_process::{HandleError, Handled, handle_in_tx};

/// A service's way to its inbox through the server; [`crate::Holdfast::inbox`] makes one. Cheap to clone.
///
/// A delivery in a transaction of one's own, by hand:
///
/// ```no_run
/// use holdfast_client::inbox::{Begun, Delivery, Inbox};
/// use holdfast_client::{outbox, v1::FailKind};
///
/// # async fn pay(tx: &mut sqlx::PgConnection) -> Result<(), sqlx::Error> { Ok(()) }
/// /// Whether the delivery may be acked.
/// async fn deliver(
///     pool: &sqlx::PgPool,
///     inbox: &Inbox,
///     delivery: &Delivery,
/// ) -> Result<bool, Box<dyn std::error::Error>> {
///     let mut tx = pool.begin().await?;
///     let ticket = outbox::ticket(&mut tx).await?;
///     match inbox.begin_in_tx(ticket, delivery).await? {
///         Begun::Process(start) => match pay(&mut tx).await {
///             Ok(()) => {
///                 tx.commit().await?;
///                 Ok(true)
///             }
///             Err(error) => {
///                 tx.rollback().await?;
///                 inbox.fail(delivery, start.generation, FailKind::Error, &error.to_string()).await?;
///                 Ok(false) // … and as the answer says: again, or surface_dead_letter
///             }
///         },
///         Begun::Duplicate(_) => Ok(true),
///         // After `surface_dead_letter` it may be acked, too.
///         Begun::InProgress(_) | Begun::DeadLetter(_) => Ok(false),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    service: String,
    transport: Transport,
    client: InboxServiceClient<Transport>,
    deadlines: Deadlines,
}

impl Inbox {
    pub(crate) fn new(
        transport: Transport,
        deadlines: Deadlines,
        service: String,
    ) -> Result<Self, ServiceNameError> {
        let service = checked_service_name(service)?;
        let client = InboxServiceClient::new(transport.clone());
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

    /// Begins to process a delivery in the transaction that `ticket` was taken in, or tells why not to. Sent again by itself; the
    /// same ticket gets the same answer.
    ///
    /// After [`Begun::Process`] that transaction's COMMIT marks the message as processed. After an error roll back: whether it was
    /// begun is then unknown, and a COMMIT would mark it.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `BeginConsume` in the contract.
    ///
    /// ```no_run
    /// # use holdfast_client::inbox::{Begun, Delivery, Inbox};
    /// # async fn example(pool: sqlx::PgPool, inbox: Inbox, delivery: Delivery) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// let ticket = holdfast_client::outbox::ticket(&mut tx).await?;
    /// if let Begun::Process(_) = inbox.begin_in_tx(ticket, &delivery).await? {
    ///     // … the handler's own rows …
    ///     tx.commit().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn begin_in_tx(&self, ticket: Ticket, delivery: &Delivery) -> Result<Begun, Error> {
        self.begin(delivery, v1::begin_consume_request::Binding::Ticket(ticket.get())).await
    }

    /// Begins to process a delivery under a lease, or tells why not to. Sent again by itself; the same lease gets the same answer, and is
    /// counted from then on, so that this also prolongs it.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `BeginConsume` in the contract.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use holdfast_client::inbox::{Begun, Delivery, Inbox, Lease};
    /// # async fn example(inbox: Inbox, delivery: Delivery) -> Result<(), holdfast_client::Error> {
    /// let lease = Lease::new(Duration::from_secs(60));
    /// if let Begun::Process(start) = inbox.begin_with_lease(&lease, &delivery).await? {
    ///     // … the effect, wherever it is …
    ///     inbox.complete(&delivery, start.generation).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn begin_with_lease(&self, lease: &Lease, delivery: &Delivery) -> Result<Begun, Error> {
        let lease = v1::ConsumeLease {
            // What is too long for the wire is too long for the server, who then says that it is missing.
            duration: lease.duration.try_into().ok(),
            token: lease.token.to_string(),
        };
        self.begin(delivery, v1::begin_consume_request::Binding::Lease(lease)).await
    }

    async fn begin(
        &self,
        delivery: &Delivery,
        binding: v1::begin_consume_request::Binding,
    ) -> Result<Begun, Error> {
        let request = v1::BeginConsumeRequest {
            service: self.service.clone(),
            consumer_queue: delivery.queue.clone(),
            envelope_id: delivery.envelope_id.to_string(),
            source_service: delivery.source_service.clone(),
            event_type: delivery.event_type.clone(),
            redelivered: delivery.redelivered,
            replay_id: delivery.replay_id.map(|id| id.to_string()).unwrap_or_default(),
            cycle: delivery.cycle,
            binding: Some(binding),
        };
        let answer = self
            .call(rpc::BEGIN_CONSUME, &request, |mut client, request| async move {
                client.begin_consume(request).await
            })
            .await?;
        Ok(Begun::from(answer))
    }

    /// Says that the message was processed, by the start of this generation; ack after it. With a lease this marks it; with a ticket it makes
    /// sure of an asynchronous COMMIT.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `CompleteConsume` in the contract; `FailedPrecondition` with `ConsumptionStale`: somebody has begun
    /// again since, do not ack.
    ///
    /// ```no_run
    /// # use holdfast_client::inbox::{Delivery, Inbox};
    /// # async fn example(inbox: Inbox, delivery: Delivery, generation: i64) -> Result<(), holdfast_client::Error> {
    /// let done = inbox.complete(&delivery, generation).await?;
    /// println!("processed at {:?}", done.processed_at);
    /// # Ok(()) }
    /// ```
    pub async fn complete(
        &self,
        delivery: &Delivery,
        generation: i64,
    ) -> Result<v1::CompleteConsumeResponse, Error> {
        let request = v1::CompleteConsumeRequest {
            service: self.service.clone(),
            consumer_queue: delivery.queue.clone(),
            envelope_id: delivery.envelope_id.to_string(),
            generation,
        };
        self.call(rpc::COMPLETE_CONSUME, &request, |mut client, request| async move {
            client.complete_consume(request).await
        })
        .await
    }

    /// Says that the start of this generation did not process the message, and answers what comes next. With a ticket roll back first.
    /// `error`: for people, no payload, no secrets; cut after 1,024 bytes.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `FailConsume` in the contract.
    ///
    /// ```no_run
    /// # use holdfast_client::inbox::{Delivery, Inbox, Next};
    /// # use holdfast_client::v1::FailKind;
    /// # async fn example(inbox: Inbox, delivery: Delivery, generation: i64) -> Result<(), holdfast_client::Error> {
    /// match inbox.fail(&delivery, generation, FailKind::Error, "no such order").await? {
    ///     Next::Retry(retry) => println!("{} of {}", retry.failures, retry.most_failures),
    ///     Next::DeadLetter(letter) => println!("surface {}", letter.token),
    ///     Next::Duplicate(_) => println!("processed after all: ack"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn fail(
        &self,
        delivery: &Delivery,
        generation: i64,
        kind: v1::FailKind,
        error: &str,
    ) -> Result<Next, Error> {
        let request = v1::FailConsumeRequest {
            service: self.service.clone(),
            consumer_queue: delivery.queue.clone(),
            envelope_id: delivery.envelope_id.to_string(),
            generation,
            error: consumption::legible(error),
            kind: kind.into(),
        };
        let answer = self
            .call(rpc::FAIL_CONSUME, &request, |mut client, request| async move {
                client.fail_consume(request).await
            })
            .await?;
        Ok(Next::from(answer))
    }

    /// Publishes a message whose attempts are used up to the dead-letter exchange and marks it; ack after it. `letter.service` is
    /// filled in here.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `SurfaceDeadLetter` in the contract; `FailedPrecondition` with `DeadLetterStale`: do not ack.
    ///
    /// ```no_run
    /// # use holdfast_client::{inbox::Inbox, v1};
    /// # async fn example(inbox: Inbox, dead: v1::DeadLetter, body: Vec<u8>) -> Result<(), holdfast_client::Error> {
    /// let letter = v1::SurfaceDeadLetterRequest { token: dead.token, body, ..Default::default() };
    /// inbox.surface_dead_letter(letter).await?;
    /// # Ok(()) }
    /// ```
    pub async fn surface_dead_letter(
        &self,
        letter: v1::SurfaceDeadLetterRequest,
    ) -> Result<v1::SurfaceDeadLetterResponse, Error> {
        let request = v1::SurfaceDeadLetterRequest { service: self.service.clone(), ..letter };
        self.call(rpc::SURFACE_DEAD_LETTER, &request, |mut client, request| async move {
            client.surface_dead_letter(request).await
        })
        .await
    }

    /// What became of a message in a queue. Changes nothing.
    ///
    /// # Errors
    /// [`Error`]; `NotFound` with `ConsumptionNotFound`: nobody has begun it.
    ///
    /// ```no_run
    /// # async fn example(inbox: holdfast_client::inbox::Inbox, id: uuid::Uuid) -> Result<(), holdfast_client::Error> {
    /// let consumption = inbox.get_consumption("orders.payments", id).await?;
    /// println!("{}: {}", consumption.state().as_str_name(), consumption.why);
    /// # Ok(()) }
    /// ```
    pub async fn get_consumption(
        &self,
        queue: impl Into<String>,
        envelope_id: Uuid,
    ) -> Result<v1::Consumption, Error> {
        let request = v1::GetConsumptionRequest {
            service: self.service.clone(),
            consumer_queue: queue.into(),
            envelope_id: envelope_id.to_string(),
        };
        let answer = self
            .call(rpc::GET_CONSUMPTION, &request, |mut client, request| async move {
                client.get_consumption(request).await
            })
            .await?;
        Ok(answer.consumption.unwrap_or_default())
    }

    /// Gives each attempt a client of its own.
    async fn call<M: Clone, A, F>(
        &self,
        rpc: Rpc,
        request: &M,
        send: impl Fn(InboxServiceClient<Transport>, tonic::Request<M>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let send = |request| send(self.client.clone(), request);
        call(&self.transport, rpc, self.deadlines.call, request, send).await
    }
}
