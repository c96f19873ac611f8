//! Holds: events that wait, after their transaction's commit, until the operation they belong to is released or dropped.
//!
//! ```text
//! hold ─▶ stage_in_tx, COMMIT (here, and in other services) ─▶ release_held: delivered
//!                                                          └─▶ drop_held: never
//! ```
//!
//! Guarantees: a decision is final, may be sent again, and holds for what is staged later, too. Does not: decide by time.
//! Design: section 5.

use holdfast_proto::v1;
use holdfast_proto::v1::hold_service_client::HoldServiceClient;
#[cfg(feature = "sqlx")]
use sqlx::PgConnection;

#[cfg(feature = "sqlx")]
use super::StageError;
use super::{Outbox, Staged, Ticket};
use crate::Error;
use crate::call::call;
use crate::connection::Transport;
use crate::rpc;

/// One attempt at an operation, for which events are held; [`Outbox::hold`] makes one. Cheap to clone.
///
/// ```no_run
/// use holdfast_client::outbox::{Outbox, event};
///
/// # async fn example(pool: sqlx::PgPool, outbox: Outbox) -> Result<(), Box<dyn std::error::Error>> {
/// let operation = outbox.hold("finalize-17", 1);
/// let mut tx = pool.begin().await?;
/// let staged = operation.stage_in_tx(&mut tx, [event("order.finalized").subject("o-1")]).await?;
/// outbox.commit_and_confirm(tx, [&staged]).await?;
/// // … the other steps of the operation; then, here or in whoever finishes it:
/// operation.release_held().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Hold {
    outbox: Outbox,
    pair: v1::Hold,
    client: HoldServiceClient<Transport>,
}

impl Outbox {
    /// The events of one operation and generation. The operation's id has 1 to 255 bytes, the generation is 0 or more:
    /// another attempt at the same operation, decided apart from the others. Both are judged by the server.
    #[must_use]
    pub fn hold(&self, operation_id: impl Into<String>, generation: i64) -> Hold {
        Hold {
            outbox: self.clone(),
            pair: v1::Hold { operation_id: operation_id.into(), generation },
            client: HoldServiceClient::new(self.transport.clone()),
        }
    }

    /// A page of the operations that have events waiting in this service's outbox, all or one, with their counts and
    /// since when. `page_token`: empty, or the `next_page_token` of the page before; an empty one there says that it was
    /// the last.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `ListHeld` in the contract.
    ///
    /// ```no_run
    /// # async fn example(outbox: holdfast_client::outbox::Outbox) -> Result<(), holdfast_client::Error> {
    /// let mut page_token = String::new();
    /// loop {
    ///     let page = outbox.list_held(None, &page_token).await?;
    ///     for one in &page.operations {
    ///         println!("{:?}: {} held, {} of open transactions", one.hold, one.held, one.unresolved);
    ///     }
    ///     page_token = page.next_page_token;
    ///     if page_token.is_empty() {
    ///         return Ok(());
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn list_held(
        &self,
        operation_id: Option<&str>,
        page_token: &str,
    ) -> Result<v1::ListHeldResponse, Error> {
        let request = v1::ListHeldRequest {
            service: self.service.clone(),
            operation_id: operation_id.unwrap_or_default().to_owned(),
            page_size: 0,
            page_token: page_token.to_owned(),
        };
        let client = HoldServiceClient::new(self.transport.clone());
        let send = |request| {
            let mut client = client.clone();
            async move { client.list_held(request).await }
        };
        call(&self.transport, rpc::LIST_HELD, self.deadlines.call, &request, send).await
    }
}

impl Hold {
    /// The operation's id.
    #[must_use]
    pub fn operation_id(&self) -> &str {
        &self.pair.operation_id
    }

    /// The generation.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.pair.generation
    }

    /// As [`Outbox::stage_in_tx`]; after the commit the events wait for the operation. If that was released before, they
    /// do not wait.
    ///
    /// # Errors
    /// As there; `FailedPrecondition` with `HoldDropped`: the operation was dropped, roll back.
    #[cfg(feature = "sqlx")]
    pub async fn stage_in_tx<E: Into<v1::Event>>(
        &self,
        conn: &mut PgConnection,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, StageError> {
        let events: Vec<v1::Event> = events.into_iter().map(Into::into).collect();
        let ticket = super::ticket(conn).await?;
        Ok(self.stage(ticket, events).await?)
    }

    /// As [`Outbox::stage`], held for the operation.
    ///
    /// # Errors
    /// As there; `FailedPrecondition` with `HoldDropped`: the operation was dropped, roll back.
    pub async fn stage<E: Into<v1::Event>>(
        &self,
        ticket: Ticket,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Staged, Error> {
        self.outbox.stage_with(ticket, events, Some(self.pair.clone())).await
    }

    /// Releases: the events are delivered, each once its own transaction has committed, and what is staged for this
    /// operation later is not held. Sent again by itself; may be called again.
    ///
    /// `complete` = false: events are left. Call again, or leave them to the server.
    ///
    /// # Errors
    /// [`Error`], with the reasons of `ReleaseHeld` in the contract; `FailedPrecondition` with `HoldAlreadyDecided`: it
    /// was dropped.
    pub async fn release_held(&self) -> Result<v1::ReleaseHeldResponse, Error> {
        let request =
            v1::ReleaseHeldRequest { service: self.outbox.service.clone(), hold: Some(self.pair.clone()) };
        let send = |request| {
            let mut client = self.client.clone();
            async move { client.release_held(request).await }
        };
        call(&self.outbox.transport, rpc::RELEASE_HELD, self.outbox.deadlines.call, &request, send).await
    }

    /// Drops: the events are deleted, those of open transactions, too, and nothing can be staged for this operation any
    /// more. Sent again by itself; may be called again. `complete` as with [`Self::release_held`].
    ///
    /// # Errors
    /// [`Error`], with the reasons of `DropHeld` in the contract; `FailedPrecondition` with `HoldAlreadyDecided`: it was
    /// released.
    pub async fn drop_held(&self) -> Result<v1::DropHeldResponse, Error> {
        let request =
            v1::DropHeldRequest { service: self.outbox.service.clone(), hold: Some(self.pair.clone()) };
        let send = |request| {
            let mut client = self.client.clone();
            async move { client.drop_held(request).await }
        };
        call(&self.outbox.transport, rpc::DROP_HELD, self.outbox.deadlines.call, &request, send).await
    }
}
