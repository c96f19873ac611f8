//! Health as orchestrators ask for it (`grpc.health.v1`): what [`crate::health`] finds, pushed to whoever checks or watches.
//! Probes take no database connection. Everything is NOT_SERVING until it was first seen good; when the server stops,
//! everything but `liveness` is NOT_SERVING again, before the listener closes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tracing::{info, warn};

use crate::health::{Component, Facts};

/// The RPC services themselves, which generic tools ask for: as `readiness`.
const SERVED: [&str; 2] = ["holdfast.v1.OutboxService", "holdfast.v1.ControlService"];
/// A look costs microseconds; a change is told this late at most.
const LOOK: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(2);

/// The health service: each component of `facts` is known to it from the start, as NOT_SERVING.
pub async fn new(facts: &Facts) -> (HealthReporter, HealthServer<impl Health>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    // (The library's own default for "" is SERVING.)
    for component in facts.look() {
        tell(&reporter, &component.name, false).await;
    }
    for name in SERVED {
        tell(&reporter, name, false).await;
    }
    (reporter, service)
}

/// Keeps the statuses true until the server stops, and tells that last.
pub async fn run(reporter: HealthReporter, facts: Facts) {
    let mut told: HashMap<String, bool> = HashMap::new();
    let mut interval = tokio::time::interval(LOOK);
    loop {
        let stopping = tokio::select! {
            biased;
            () = facts.stopping.cancelled() => true,
            _ = interval.tick() => false,
        };
        for component in facts.look() {
            push(&reporter, &mut told, &component, stopping).await;
        }
        if stopping {
            return;
        }
    }
}

async fn push(
    reporter: &HealthReporter,
    told: &mut HashMap<String, bool>,
    component: &Component,
    stopping: bool,
) {
    let before = told.insert(component.name.clone(), component.serving);
    if before == Some(component.serving) {
        return;
    }
    tell(reporter, &component.name, component.serving).await;
    if component.name == "readiness" {
        for name in SERVED {
            tell(reporter, name, component.serving).await;
        }
    }
    // The cause is complained of where it is met; here only that it is told to others.
    if before.is_some() && !stopping {
        let status = if component.serving { "SERVING" } else { "NOT_SERVING" };
        info!(component = component.name, status, why = component.why, "health changed");
    }
}

async fn tell(reporter: &HealthReporter, name: &str, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status(name, status).await;
}

/// Sees whether the server's own listener takes connections, until `stopping`.
pub async fn watch_listener(listen: SocketAddr, open: Arc<AtomicBool>, stopping: CancellationToken) {
    let mut interval = tokio::time::interval(CONNECT);
    let mut failed = false;
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            _ = interval.tick() => {}
        }
        let good = matches!(tokio::time::timeout(CONNECT, TcpStream::connect(listen)).await, Ok(Ok(_)));
        // Twice in a row: one that was slow, or found no descriptor left, says nothing about the next.
        let answers = good || (!failed && open.load(Ordering::Relaxed));
        failed = !good;
        if open.swap(answers, Ordering::Relaxed) && !answers {
            warn!("the server's own listener does not answer; health is NOT_SERVING");
        }
    }
}
