//! Health as orchestrators ask for it (`grpc.health.v1`). Probes take no database connection.
//!
//! `""` and `liveness` are the process, `readiness` is "calls can be answered: configuration valid, listener open". All are
//! NOT_SERVING until the first good check, a connection through our own listener, and again once the server stops.

use std::net::SocketAddr;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tracing::warn;

/// Names a probe may ask for. The last is the RPC service itself, which generic tools ask for.
const NAMES: [&str; 4] = ["", "liveness", "readiness", "holdfast.v1.OutboxService"];
const INTERVAL: Duration = Duration::from_secs(2);

/// The health service, NOT_SERVING everywhere.
pub async fn new() -> (HealthReporter, HealthServer<impl Health>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    // The library's own default for "" is SERVING.
    set_all(&reporter, ServingStatus::NotServing).await;
    (reporter, service)
}

/// Keeps the statuses true until `stopping`; then all are NOT_SERVING.
pub async fn run(reporter: HealthReporter, listen: SocketAddr, stopping: CancellationToken) {
    let mut serving = false;
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            _ = interval.tick() => {}
        }
        let good =
            matches!(tokio::time::timeout(INTERVAL, tokio::net::TcpStream::connect(listen)).await, Ok(Ok(_)));
        if good != serving {
            serving = good;
            if !good {
                warn!("the server's own listener does not answer; health is NOT_SERVING");
            }
            set_all(&reporter, if good { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
    }
    set_all(&reporter, ServingStatus::NotServing).await;
}

async fn set_all(reporter: &HealthReporter, status: ServingStatus) {
    for name in NAMES {
        reporter.set_service_status(name, status).await;
    }
}
