//! The admin port: plain HTTP/1.1 for machines that watch this one. `/metrics` in Prometheus' text format, `/healthz` (the
//! process lives), `/readyz` (calls can be answered; the components as text).
//!
//! Guarantees: nothing secret is there; a look asks no database; whoever opens connections and says nothing is cut off, and
//! at most [`MOST_CONNECTIONS`] are open. It stays until the last moment of a stop, so that the stop itself can be watched.
//! Does not: authenticate. Design, section 13.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, warn};

use crate::health::{Component, Facts};
use crate::metrics::Metrics;

/// A handful of scrapers and probes; more is somebody else.
const MOST_CONNECTIONS: usize = 64;
/// For a request's head, and for the next request of a connection that is kept.
const SILENCE: Duration = Duration::from_secs(10);
/// For an answer that is under way when the server ends.
const GRACE: Duration = Duration::from_millis(200);

/// What is answered from.
#[derive(Clone)]
pub struct Admin {
    metrics: Metrics,
    facts: Facts,
}

impl Admin {
    /// Answers from these.
    pub fn new(metrics: Metrics, facts: Facts) -> Self {
        Self { metrics, facts }
    }

    /// Serves until `shutdown`.
    pub async fn run(self, listener: TcpListener, shutdown: CancellationToken) {
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(self);
        let (places, tracker) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), TaskTracker::new());
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let (router, shutdown) = (router.clone(), shutdown.clone());
                        tracker.spawn(async move {
                            converse(stream, peer, router, shutdown).await;
                            drop(place);
                        });
                    }
                    Err(_) => warn!(%peer, "the admin port has too many connections; this one is closed"),
                },
                Err(error) => {
                    // No file descriptor left, say: again after a moment, not at once and not never.
                    debug!(%error, "a connection to the admin port could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        tracker.close();
        tracker.wait().await;
    }
}

async fn converse(stream: TcpStream, peer: SocketAddr, router: Router, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%peer, %error, "a connection to the admin port ended");
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            error!(%error, "the metrics could not be gathered");
            (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be gathered; see the log\n")
                .into_response()
        }
    }
}

async fn healthz() -> &'static str {
    "SERVING\n"
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let components = admin.facts.look();
    let ready = components.iter().any(|one| one.name == "readiness" && one.serving);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, listed(&components)).into_response()
}

/// One line a component. Only `readiness` decides the answer's status.
fn listed(components: &[Component]) -> String {
    let mut text = String::new();
    for Component { name, serving, why } in components.iter().filter(|one| !one.name.is_empty()) {
        let status = if *serving { "SERVING" } else { "NOT_SERVING" };
        let gap = if why.is_empty() { "" } else { "  " };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {status}{gap}{why}");
    }
    text
}
