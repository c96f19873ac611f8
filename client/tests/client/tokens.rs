//! Access tokens on the wire: sent, renewed, never shown.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use holdfast_client::outbox::{Outbox, event};
use holdfast_client::token::{Token, TokenError, TokenFile, TokenProvider, TokenSource};
use holdfast_client::v1::{GetEventRequest, outbox_service_client::OutboxServiceClient};
use holdfast_client::{Code, Holdfast};
use tonic::Status;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Outcome;
use crate::peer::{Line, Peer, listener, locked};

type Failed = Box<dyn std::error::Error>;

async fn start(
    script: impl IntoIterator<Item = Line>,
    source: impl TokenSource,
) -> Result<(Peer, Holdfast, Outbox), Failed> {
    let peer = Peer::new(script);
    let (listener, address) = listener().await?;
    peer.serve(listener, None)?;
    let holdfast = Holdfast::builder().endpoint(format!("http://{address}")).token(source).build()?;
    let outbox = holdfast.outbox("orders")?;
    Ok((peer, holdfast, outbox))
}

/// Gives "t-0", "t-1", …, a new one when the last was refused.
fn numbered() -> (TokenProvider, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let provider = TokenProvider::new(move || {
        let number = counted.fetch_add(1, SeqCst);
        async move { Token::new(format!("t-{number}")) }
    });
    (provider, count)
}

fn unauthenticated() -> Line {
    Line::Fail(Status::unauthenticated("expired"))
}

fn sent(peer: &Peer) -> Vec<String> {
    locked(&peer.authorizations).iter().map(|header| header.clone().unwrap_or_default()).collect()
}

#[tokio::test]
async fn the_token_goes_with_every_call_of_this_library_and_of_a_generated_client() -> Outcome {
    let (peer, holdfast, outbox) = start([], Token::new("abc")?).await?;
    outbox.stage_now([event("a")]).await?;
    outbox.get_event(uuid::Uuid::now_v7()).await?;
    let mut generated = OutboxServiceClient::new(holdfast.transport());
    generated.get_event(GetEventRequest::default()).await?;
    assert_eq!(sent(&peer), ["Bearer abc"; 3]);

    // A caller that brings its own is not overruled.
    let mut own = tonic::Request::new(GetEventRequest::default());
    own.metadata_mut().insert("authorization", "Bearer own".parse()?);
    generated.get_event(own).await?;
    assert_eq!(sent(&peer)[3], "Bearer own");
    Ok(())
}

#[tokio::test]
async fn a_file_is_read_again_for_each_call() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    std::fs::write(&path, "one\n")?;
    let (peer, _, outbox) = start([], TokenFile::new(&path)).await?;
    outbox.stage_now([event("a")]).await?;
    // Same length, in place and at once: what a look at the file's size or time might not tell.
    std::fs::write(&path, "two\n")?;
    outbox.stage_now([event("a")]).await?;
    std::fs::write(folder.path().join("new"), "three\n")?;
    std::fs::rename(folder.path().join("new"), &path)?;
    outbox.stage_now([event("a")]).await?;
    assert_eq!(sent(&peer), ["Bearer one", "Bearer two", "Bearer three"]);
    Ok(())
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_the_same_request_sent_once_more() -> Outcome {
    let (provider, fetched) = numbered();
    let (peer, _, outbox) = start([unauthenticated()], provider).await?;
    outbox.stage_now([event("a")]).await?;
    outbox.stage_now([event("a")]).await?;
    assert_eq!(sent(&peer), ["Bearer t-0", "Bearer t-1", "Bearer t-1"]);
    assert_eq!(fetched.load(SeqCst), 2);
    let requests = locked(&peer.staged_now).clone();
    assert_eq!(requests[0], requests[1]);
    Ok(())
}

#[tokio::test]
async fn a_second_refusal_is_the_caller_s_and_the_next_call_does_not_fetch_again_so_soon() -> Outcome {
    let (provider, fetched) = numbered();
    let (peer, _, outbox) = start([unauthenticated(), unauthenticated()], provider).await?;
    let Err(error) = outbox.stage_now([event("a")]).await else { return Err("staged".into()) };
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unauthenticated, true));
    outbox.stage_now([event("a")]).await?;
    assert_eq!(sent(&peer), ["Bearer t-0", "Bearer t-1", "Bearer t-1"]);
    assert_eq!(fetched.load(SeqCst), 2);
    Ok(())
}

#[tokio::test]
async fn a_token_that_nobody_renews_is_refused_once() -> Outcome {
    let (peer, _, outbox) = start([unauthenticated()], Token::new("abc")?).await?;
    let Err(error) = outbox.stage_now([event("a")]).await else { return Err("staged".into()) };
    assert_eq!((error.code(), peer.calls()), (Code::Unauthenticated, 1));
    Ok(())
}

/// A generated client has no repetitions, but its next call has the next token.
#[tokio::test]
async fn a_refusal_of_a_generated_client_s_call_renews_the_token_too() -> Outcome {
    let (provider, _) = numbered();
    let (peer, holdfast, _) = start([unauthenticated()], provider).await?;
    let mut generated = OutboxServiceClient::new(holdfast.transport());
    assert!(generated.get_event(GetEventRequest::default()).await.is_err());
    generated.get_event(GetEventRequest::default()).await?;
    assert_eq!(sent(&peer), ["Bearer t-0", "Bearer t-1"]);
    Ok(())
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_error_says_why() -> Outcome {
    let (peer, _, outbox) = start([], TokenFile::new("/nowhere/token")).await?;
    let Err(error) = outbox.stage_now([event("a")]).await else { return Err("staged".into()) };
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unauthenticated, true));
    assert!(error.to_string().contains("/nowhere/token"), "{error}");
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    assert!(causes.any(|cause| cause.is::<TokenError>()), "{error:?}");
    assert_eq!(peer.calls(), 0);
    Ok(())
}

/// Everything that is logged, by everybody, at the finest level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn the_token_is_in_no_log_and_no_debug_output() -> Outcome {
    const SECRET: &str = "sec-ret-of-nobody";
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    // Of this thread, which is the runtime's only one.
    let _guard = subscriber.set_default();
    let (peer, holdfast, outbox) = start([unauthenticated()], Token::new(SECRET)?).await?;
    let Err(error) = outbox.stage_now([event("a")]).await else { return Err("staged".into()) };
    assert_eq!(sent(&peer), [format!("Bearer {SECRET}")]);

    let logged = String::from_utf8_lossy(&locked(&log.0)).into_owned();
    assert!(logged.contains("TRACE"), "the transport logs at this level: {logged:?}");
    for shown in [logged, format!("{holdfast:?} {outbox:?} {error:?} {error}")] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    Ok(())
}
