//! The other end: the contract's service, answering from a script and remembering what it got.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client::outbox::Outbox;
use holdfast_client::{Code, Holdfast, v1};
use tokio::net::{TcpListener, TcpSocket};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use v1::outbox_service_server::{OutboxService, OutboxServiceServer};

type Failed = Box<dyn std::error::Error>;

/// What the peer answers next; an empty script is an OK.
pub(crate) enum Line {
    Fail(Status),
    Silence,
}

#[derive(Clone, Default)]
pub(crate) struct Peer {
    pub(crate) script: Arc<Mutex<VecDeque<Line>>>,
    pub(crate) staged: Arc<Mutex<Vec<v1::StageInTxRequest>>>,
    pub(crate) staged_now: Arc<Mutex<Vec<v1::StageNowRequest>>>,
    /// The header `authorization` of each call.
    pub(crate) authorizations: Arc<Mutex<Vec<Option<String>>>>,
}

impl Peer {
    pub(crate) fn new(script: impl IntoIterator<Item = Line>) -> Self {
        Self { script: Arc::new(Mutex::new(script.into_iter().collect())), ..Self::default() }
    }

    pub(crate) fn staged(&self) -> Vec<v1::StageInTxRequest> {
        locked(&self.staged).clone()
    }

    /// How many calls it got.
    pub(crate) fn calls(&self) -> usize {
        locked(&self.authorizations).len()
    }

    /// Begins to serve; until the test ends.
    pub(crate) fn serve(&self, listener: TcpListener, tls: Option<ServerTlsConfig>) -> Result<(), Failed> {
        let service = OutboxServiceServer::new(self.clone()).max_decoding_message_size(16 << 20);
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls)?;
        }
        tokio::spawn(server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(())
    }

    async fn next(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let authorization = metadata.get("authorization").map(|value| value.to_str().map(str::to_owned));
        locked(&self.authorizations).push(authorization.and_then(Result::ok));
        let line = locked(&self.script).pop_front();
        match line {
            None => Ok(()),
            Some(Line::Fail(status)) => Err(status),
            Some(Line::Silence) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl OutboxService for Peer {
    async fn stage_in_tx(
        &self,
        request: Request<v1::StageInTxRequest>,
    ) -> Result<Response<v1::StageInTxResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let events = written(&request.events);
        locked(&self.staged).push(request);
        self.next(&metadata).await?;
        Ok(Response::new(v1::StageInTxResponse { events }))
    }

    async fn stage_now(
        &self,
        request: Request<v1::StageNowRequest>,
    ) -> Result<Response<v1::StageNowResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let events = written(&request.events);
        locked(&self.staged_now).push(request);
        self.next(&metadata).await?;
        Ok(Response::new(v1::StageNowResponse { events }))
    }

    async fn confirm_staged(
        &self,
        request: Request<v1::ConfirmStagedRequest>,
    ) -> Result<Response<v1::ConfirmStagedResponse>, Status> {
        self.next(request.metadata()).await?;
        Ok(Response::new(v1::ConfirmStagedResponse {}))
    }

    async fn get_event(
        &self,
        request: Request<v1::GetEventRequest>,
    ) -> Result<Response<v1::GetEventResponse>, Status> {
        self.next(request.metadata()).await?;
        let id = request.into_inner().id;
        Ok(Response::new(v1::GetEventResponse { id, ..v1::GetEventResponse::default() }))
    }
}

fn written(events: &[v1::Event]) -> Vec<v1::StagedEvent> {
    events
        .iter()
        .map(|event| v1::StagedEvent { id: event.id.clone(), outcome: v1::Outcome::Staged.into() })
        .collect()
}

/// A listener on a port of its own, and where it is.
pub(crate) async fn listener() -> Result<(TcpListener, SocketAddr), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A port of one's own at which nobody listens: connections are refused until [`TcpSocket::listen`].
pub(crate) fn refusing() -> Result<(TcpSocket, SocketAddr), Failed> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// A peer with this script and an outbox that reaches it.
pub(crate) async fn start(script: impl IntoIterator<Item = Line>) -> Result<(Peer, Outbox), Failed> {
    let peer = Peer::new(script);
    let (listener, address) = listener().await?;
    peer.serve(listener, None)?;
    Ok((peer, outbox(address)?))
}

pub(crate) fn outbox(address: SocketAddr) -> Result<Outbox, Failed> {
    Ok(Holdfast::builder().endpoint(format!("http://{address}")).build()?.outbox("orders")?)
}

/// A refusal as the server words it.
pub(crate) fn refused(code: Code, reason: &str, applied: &str, retry: Option<Duration>) -> Line {
    let metadata = HashMap::from([("applied".to_owned(), applied.to_owned())]);
    let mut details = ErrorDetails::with_error_info(reason, "holdfast.v1", metadata);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    Line::Fail(Status::with_error_details(code, "scripted", details))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
