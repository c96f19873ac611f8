//! The generated client of holds, and staging with one.

use std::net::SocketAddr;

use holdfast_proto::v1::{
    DropHeldRequest, DropHeldResponse, Event, HeldOperation, Hold, ListHeldRequest, ReleaseHeldRequest,
    ReleaseHeldResponse, StageInTxRequest, StagedEvent, hold_service_client::HoldServiceClient,
};
use tonic::Status;

use crate::{
    auth::{self, Authenticated, Bearer},
    client::{Client, channel},
    scene::{SERVICE, Scene, Server},
};

/// A pair.
pub fn pair(operation_id: &str, generation: i64) -> Hold {
    Hold { operation_id: operation_id.to_owned(), generation }
}

/// A client of one server's holds.
#[derive(Debug, Clone)]
pub struct Holds {
    /// The generated client, for everything that is not here.
    pub raw: HoldServiceClient<Authenticated>,
}

impl Holds {
    /// For a server's address, with every scope of the scenes' service.
    ///
    /// # Panics
    /// When the address is none.
    pub fn at(address: SocketAddr) -> Self {
        Self::for_service(address, SERVICE)
    }

    /// The same with every scope of another one.
    ///
    /// # Panics
    /// As [`Holds::at`].
    pub fn for_service(address: SocketAddr, service: &str) -> Self {
        let token = Bearer::new(&auth::token(&auth::all_of(service)));
        Self { raw: HoldServiceClient::new(token.over(channel(address))) }
    }

    /// Of a scene's server.
    pub fn of<S: Server>(scene: &Scene<S>) -> Self {
        Self::at(scene.server.address())
    }

    /// ReleaseHeld.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_release(&self, hold: &Hold) -> Result<ReleaseHeldResponse, Status> {
        let request = ReleaseHeldRequest { service: SERVICE.to_owned(), hold: Some(hold.clone()) };
        Ok(self.raw.clone().release_held(request).await?.into_inner())
    }

    /// DropHeld.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_drop(&self, hold: &Hold) -> Result<DropHeldResponse, Status> {
        let request = DropHeldRequest { service: SERVICE.to_owned(), hold: Some(hold.clone()) };
        Ok(self.raw.clone().drop_held(request).await?.into_inner())
    }

    /// Releases, whole; tells how many, and whether it was decided before.
    ///
    /// # Panics
    /// When the server refuses, or leaves something.
    pub async fn release(&self, hold: &Hold) -> (i64, bool) {
        let answer = self.try_release(hold).await.expect("release");
        assert!(answer.complete, "{answer:?}");
        (answer.released, answer.decided_before)
    }

    /// As [`Holds::release`].
    ///
    /// # Panics
    /// As that.
    pub async fn drop_held(&self, hold: &Hold) -> (i64, bool) {
        let answer = self.try_drop(hold).await.expect("drop");
        assert!(answer.complete, "{answer:?}");
        (answer.dropped, answer.decided_before)
    }

    /// All that is held, page by page.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn list(&self, operation_id: &str, page_size: i32) -> Vec<HeldOperation> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListHeldRequest {
                service: SERVICE.to_owned(),
                operation_id: operation_id.to_owned(),
                page_size,
                page_token,
            };
            let page = self.raw.clone().list_held(request).await.expect("list").into_inner();
            assert!(page_size == 0 || page.operations.len() <= usize::try_from(page_size).unwrap());
            all.extend(page.operations);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }
}

/// Stages events with a hold.
///
/// # Errors
/// The server's answer.
pub async fn try_stage(
    client: &Client,
    ticket: i64,
    hold: &Hold,
    events: &[Event],
) -> Result<Vec<StagedEvent>, Status> {
    let request = StageInTxRequest {
        service: SERVICE.to_owned(),
        ticket,
        events: events.to_vec(),
        hold: Some(hold.clone()),
    };
    Ok(client.raw.clone().stage_in_tx(request).await?.into_inner().events)
}

/// Stages events with a hold in a transaction of their own that commits, and hints.
///
/// # Panics
/// When the server refuses.
pub async fn commit<S: Server>(scene: &Scene<S>, hold: &Hold, events: &[Event]) {
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, hold, events).await.expect("stage with a hold");
    caller.commit().await;
    scene.client.confirm(ticket).await;
    caller.close().await;
}
