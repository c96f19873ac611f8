//! Calls against a scripted peer on a real connection: what is sent again, what is not, what is known afterwards. That
//! the answers are the server's own is the end-to-end tests' claim.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_client::outbox::{ConnectError, Outbox, Ticket, event};
use holdfast_client::{Code, envelope, v1};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use v1::outbox_service_server::{OutboxService, OutboxServiceServer};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What the peer answers next; an empty script is an OK.
enum Line {
    Fail(Status),
    Silence,
}

#[derive(Clone, Default)]
struct Peer {
    script: Arc<Mutex<VecDeque<Line>>>,
    staged: Arc<Mutex<Vec<v1::StageInTxRequest>>>,
    staged_now: Arc<Mutex<Vec<v1::StageNowRequest>>>,
}

impl Peer {
    fn staged(&self) -> Vec<v1::StageInTxRequest> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn next(&self) -> Result<(), Status> {
        let line = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
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
        let request = request.into_inner();
        let events = request
            .events
            .iter()
            .map(|event| v1::StagedEvent { id: event.id.clone(), outcome: v1::Outcome::Staged.into() })
            .collect();
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        self.next().await?;
        Ok(Response::new(v1::StageInTxResponse { events }))
    }

    async fn stage_now(
        &self,
        request: Request<v1::StageNowRequest>,
    ) -> Result<Response<v1::StageNowResponse>, Status> {
        let request = request.into_inner();
        let events = request
            .events
            .iter()
            .map(|event| v1::StagedEvent { id: event.id.clone(), outcome: v1::Outcome::Staged.into() })
            .collect();
        self.staged_now.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        self.next().await?;
        Ok(Response::new(v1::StageNowResponse { events }))
    }

    async fn confirm_staged(
        &self,
        _: Request<v1::ConfirmStagedRequest>,
    ) -> Result<Response<v1::ConfirmStagedResponse>, Status> {
        self.next().await?;
        Ok(Response::new(v1::ConfirmStagedResponse {}))
    }

    async fn get_event(
        &self,
        request: Request<v1::GetEventRequest>,
    ) -> Result<Response<v1::GetEventResponse>, Status> {
        self.next().await?;
        let id = request.into_inner().id;
        Ok(Response::new(v1::GetEventResponse { id, ..v1::GetEventResponse::default() }))
    }
}

async fn start(script: impl IntoIterator<Item = Line>) -> Result<(Peer, Outbox), Box<dyn std::error::Error>> {
    let peer = Peer { script: Arc::new(Mutex::new(script.into_iter().collect())), ..Peer::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let outbox = outbox(listener.local_addr()?)?;
    let service = OutboxServiceServer::new(peer.clone()).max_decoding_message_size(16 << 20);
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok((peer, outbox))
}

fn outbox(address: SocketAddr) -> Result<Outbox, ConnectError> {
    Outbox::connect(format!("http://{address}"), "orders")
}

fn refused(code: Code, reason: &str, applied: &str, retry: Option<Duration>) -> Line {
    let metadata = HashMap::from([("applied".to_owned(), applied.to_owned())]);
    let mut details = ErrorDetails::with_error_info(reason, "holdfast.v1", metadata);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    Line::Fail(Status::with_error_details(code, "scripted", details))
}

#[tokio::test]
async fn a_stage_is_sent_again_as_the_very_same_request() -> Outcome {
    let wait = Duration::from_millis(120);
    let (peer, outbox) = start([
        Line::Fail(Status::unavailable("a balancer")),
        refused(Code::Aborted, "EVENT_CONTENDED", "no", Some(wait)),
    ])
    .await?;
    let begun = Instant::now();
    let without_id = v1::Event { r#type: "a".into(), ..v1::Event::default() };
    let staged = outbox.stage(Ticket::from(-7), [event("b").build(), without_id]).await?;
    assert!(begun.elapsed() >= wait);

    let sent = peer.staged();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|request| *request == sent[0]));
    assert_eq!((sent[0].ticket, sent[0].service.as_str()), (-7, "orders"));
    let ids: Vec<_> = sent[0].events.iter().map(|event| event.id.clone()).collect();
    assert!(ids.iter().all(|id| envelope::parse_id(id).is_some()));
    assert_eq!(staged.events.into_iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    Ok(())
}

#[tokio::test]
async fn a_stage_without_a_transaction_is_sent_again_with_the_same_ids() -> Outcome {
    let (peer, outbox) = start([Line::Fail(Status::unavailable("a balancer"))]).await?;
    let staged = outbox.stage_now([v1::Event { r#type: "a".into(), ..v1::Event::default() }]).await?;

    let sent = peer.staged_now.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!((sent.len(), sent[0].service.as_str()), (2, "orders"));
    assert_eq!(sent[0], sent[1]);
    assert_eq!(staged[0].id, sent[0].events[0].id);
    assert!(envelope::parse_id(&staged[0].id).is_some());
    Ok(())
}

#[tokio::test]
async fn what_cannot_pass_is_sent_once() -> Outcome {
    for (code, reason) in [
        (Code::FailedPrecondition, "TICKET_NOT_OPEN"),
        (Code::AlreadyExists, "EVENT_CONFLICT"),
        (Code::Internal, "INTERNAL"),
        (Code::Aborted, "EVENT_CONTENDED"),
    ] {
        let (peer, outbox) = start([refused(code, reason, "no", None)]).await?;
        let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else {
            return Err("staged".into());
        };
        assert_eq!((error.code(), error.is_certainly_not_applied()), (code, true));
        assert_eq!(peer.staged().len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn attempts_end_and_the_last_error_is_given() -> Outcome {
    let again = || refused(Code::Unavailable, "SHUTTING_DOWN", "no", Some(Duration::from_millis(1)));
    let (peer, outbox) = start((0..20).map(|_| again())).await?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!(error.reason(), Some(v1::ErrorReason::ShuttingDown));
    assert!(error.is_certainly_not_applied());
    assert_eq!(peer.staged().len(), 5);
    Ok(())
}

#[tokio::test]
async fn a_sure_no_after_an_unclear_attempt_is_not_sure() -> Outcome {
    let (_, outbox) = start([
        Line::Fail(Status::unavailable("a balancer")),
        refused(Code::FailedPrecondition, "TICKET_NOT_OPEN", "no", None),
    ])
    .await?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!(error.reason(), Some(v1::ErrorReason::TicketNotOpen));
    assert!(!error.is_certainly_not_applied());
    Ok(())
}

#[tokio::test]
async fn one_deadline_covers_all_attempts() -> Outcome {
    let limit = Duration::from_millis(400);
    let (peer, outbox) = start([Line::Fail(Status::unavailable("a balancer")), Line::Silence]).await?;
    let begun = Instant::now();
    let Err(error) = outbox.with_deadline(limit).stage(Ticket::from(1), [event("a")]).await else {
        return Err("staged".into());
    };
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(!error.is_certainly_not_applied());
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 5);
    assert_eq!(peer.staged().len(), 2);
    Ok(())
}

/// The peer takes each connection and drops it in the middle of a call.
#[tokio::test]
async fn a_lost_connection_is_tried_again_and_never_certain() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let outbox = outbox(listener.local_addr()?)?;
    let (count, mut counted) = tokio::sync::watch::channel(0_u32);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 64]).await;
            count.send_modify(|n| *n += 1);
        }
    });
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert!(!error.is_certainly_not_applied());
    assert_eq!(error.reason(), None);
    assert!(*counted.borrow_and_update() >= 5, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let outbox = outbox(listener.local_addr()?)?;
    drop(listener);
    let Err(error) = outbox.confirm_staged(Ticket::from(1)).await else { return Err("confirmed".into()) };
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unavailable, false));
    Ok(())
}

#[tokio::test]
async fn look_ups_and_hints_are_sent_once() -> Outcome {
    let away = || Line::Fail(Status::unavailable("a balancer"));
    let (_, outbox) = start([away(), away()]).await?;
    let id = uuid::Uuid::now_v7();
    assert!(outbox.get_event(id).await.is_err());
    assert!(outbox.confirm_staged(Ticket::from(1)).await.is_err());
    assert_eq!(outbox.get_event(id).await?.id, id.to_string());
    Ok(())
}

#[tokio::test]
async fn a_request_over_the_limit_is_not_sent() -> Outcome {
    let (peer, outbox) = start([]).await?;
    let megabyte = || event("a").binary(vec![0; 1 << 20]);
    let Err(error) = outbox.stage(Ticket::from(1), (0..8).map(|_| megabyte())).await else {
        return Err("staged".into());
    };
    assert_eq!((error.code(), error.reason()), (Code::ResourceExhausted, Some(v1::ErrorReason::TooLarge)));
    assert!(error.is_certainly_not_applied());
    assert!(peer.staged().is_empty());
    // Larger than the library's own default of 4 MiB, and within the contract.
    outbox.stage(Ticket::from(1), (0..7).map(|_| megabyte())).await?;
    Ok(())
}

#[tokio::test]
async fn a_name_or_an_address_that_cannot_be_right_is_refused_at_once() {
    let refused = |address: &str, service: &str| Outbox::connect(address, service).err();
    assert!(matches!(refused("http://localhost:1", "Orders"), Some(ConnectError::Service(_))));
    assert!(matches!(refused("http://localhost:1", "holdfast"), Some(ConnectError::Service(_))));
    assert!(matches!(refused("https://localhost:1", "orders"), Some(ConnectError::Scheme)));
    assert!(matches!(refused("localhost:1", "orders"), Some(ConnectError::Scheme)));
    assert!(matches!(refused("", "orders"), Some(ConnectError::Address(_))));
    assert!(refused("http://localhost:1", "orders").is_none());
}
