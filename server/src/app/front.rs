//! The front: who is let in, the gRPC server with all its services, and its listener.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{Stream, StreamExt};
use holdfast_proto::envelope;
use holdfast_proto::v1::control_service_server::ControlServiceServer;
use holdfast_proto::v1::hold_service_server::HoldServiceServer;
use holdfast_proto::v1::inbox_service_server::InboxServiceServer;
use holdfast_proto::v1::outbox_admin_service_server::OutboxAdminServiceServer;
use holdfast_proto::v1::outbox_service_server::OutboxServiceServer;
use holdfast_proto::v1::replay_service_server::ReplayServiceServer;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tracing::{debug, error};

use super::tasks::{Stop, Tasks};
use crate::auth::{Expectations, KeyFiles, Report, Verifier};
use crate::config::{Auth, Tls};
use crate::grpc::{
    Admin, Authentication, Calls, ControlFront, Gate, HoldFront, InboxFront, OutboxAdminFront, OutboxFront,
    Reflection, RenameOversize, ReplayFront, RequestId, Services, ThisReplica, probes,
};
use crate::health::Facts;
use crate::metrics::Metrics;

/// Twice the limit of a request, so that most of what is too large gets our own answer.
const MAX_DECODED_BYTES: usize = 2 * envelope::MAX_REQUEST_BYTES;
/// Streams of one connection; the protocol's library has no limit of its own.
const MAX_STREAMS: u32 = 1_024;
/// How long calls in flight may take to finish once the server stops.
const FRONT_GRACE: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take: who connects and says nothing is let go.
const TLS_PATIENCE: Duration = Duration::from_secs(10);

/// Who is let in. The key files are watched until the server stops.
pub(super) fn gate(auth: &Auth, metrics: &Metrics, stop: &Stop, tasks: &Tasks) -> anyhow::Result<Gate> {
    if auth.open {
        return Ok(Gate::Open);
    }
    anyhow::ensure!(!auth.keys.is_empty(), "auth.keys: is missing: without a key nobody can call");
    let files = KeyFiles::open(&auth.keys, &auth.algorithms).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("auth.keys: {}", problems.join("; "))
    })?;
    let expected = Expectations { audience: auth.audience.clone(), issuer: auth.issuer.clone() };
    let verifier = Verifier::new(files.current(), expected);
    let gauges = metrics.auth().clone();
    let shown = move |report: &Report| {
        gauges.keys.set(i64::try_from(report.keys).unwrap_or(i64::MAX));
        gauges.files_good.set(i64::from(report.problems.is_empty()));
        if report.problems.is_empty() {
            gauges.files_good_at.set(OffsetDateTime::now_utc().unix_timestamp());
        }
    };
    tasks.spawn(&tasks.front, "key files", files.run(shown, stop.front.clone()));
    Ok(Gate::Tokens(Arc::new(verifier)))
}

/// The certificates, read once.
pub(super) fn tls(tls: &Tls) -> anyhow::Result<Option<ServerTlsConfig>> {
    let (Some(certificate), Some(key)) = (&tls.certificate_file, &tls.key_file) else { return Ok(None) };
    let read = |field: &str, path: &Path| {
        std::fs::read(path).with_context(|| format!("tls.{field}: cannot read {}", path.display()))
    };
    let identity = Identity::from_pem(read("certificate_file", certificate)?, read("key_file", key)?);
    let mut config = ServerTlsConfig::new().identity(identity).timeout(TLS_PATIENCE);
    if let Some(clients) = &tls.client_ca_file {
        config = config.client_ca_root(Certificate::from_pem(read("client_ca_file", clients)?));
    }
    Ok(Some(config))
}

/// What the front answers from.
pub(super) struct Front {
    pub(super) replica: ThisReplica,
    pub(super) services: Services,
    pub(super) facts: Facts,
    pub(super) metrics: Metrics,
    pub(super) admin: Admin,
    pub(super) gate: Gate,
    pub(super) reflection: Reflection,
    pub(super) tls: Option<ServerTlsConfig>,
}

/// Serves until the front stops.
///
/// # Errors
/// The certificates cannot be used.
pub(super) async fn serve(
    listener: TcpListener,
    local_addr: SocketAddr,
    front: Front,
    stop: &Stop,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let Front { replica, services, facts, metrics, admin, gate, reflection, tls } = front;
    let (reporter, health) = probes::new(&facts).await;
    let watching = probes::watch_listener(local_addr, facts.listener.clone(), stop.front.clone());
    tasks.spawn(&tasks.front, "listener's watch", watching);
    tasks.spawn(&tasks.front, "probes", probes::run(reporter, facts.clone()));
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(holdfast_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // So that grpcurl shows the details of an error and not their bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let holds = HoldServiceServer::new(HoldFront::new(services.clone()));
    let inbox = InboxServiceServer::new(InboxFront::new(services.clone()))
        .max_decoding_message_size(MAX_DECODED_BYTES);
    let outbox = OutboxServiceServer::new(OutboxFront::new(services.clone()))
        .max_decoding_message_size(MAX_DECODED_BYTES);
    let operators = OutboxAdminServiceServer::new(OutboxAdminFront::new(services.clone(), admin.clone()));
    let replays = ReplayServiceServer::new(ReplayFront::new(services.clone(), admin.clone()));
    let control = ControlServiceServer::new(ControlFront::new(replica, services, facts, admin));
    let calls = Calls::new(
        metrics.grpc().clone(),
        &[holdfast_proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET],
    )?;
    let authentication = Authentication::new(gate, reflection, metrics.auth().clone());
    let mut server = tonic::transport::Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).context("tls: certificate and key cannot be used")?;
    }
    let reflected = reflection != Reflection::Off;
    let router = server
        .max_concurrent_streams(MAX_STREAMS)
        // Callers whose deadlines pass reset their streams; the default of 20 ends the connection, and with it the calls of
        // patient neighbours.
        .http2_max_pending_accept_reset_streams(Some(2 * MAX_STREAMS as usize))
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        // From outside to inside; what belongs where is said in `grpc/layers`.
        .layer(RequestId)
        .layer(calls)
        .layer(authentication)
        .layer(RenameOversize)
        .add_service(health)
        .add_optional_service(reflected.then(|| described().build_v1()).transpose()?)
        .add_optional_service(reflected.then(|| described().build_v1alpha()).transpose()?)
        .add_service(control)
        .add_service(holds)
        .add_service(inbox)
        .add_service(operators)
        .add_service(outbox)
        .add_service(replays);
    let stopping = stop.front.clone();
    let failed = tasks.failed.clone();
    tasks.spawn(&tasks.front, "listener", async move {
        let stopped = stopping.clone().cancelled_owned();
        let serving = router.serve_with_incoming_shutdown(accepted(listener), stopped);
        let hard_stop = async {
            stopping.cancelled().await;
            // A connection that never says a word would keep a graceful stop waiting for ever.
            tokio::time::sleep(FRONT_GRACE).await;
        };
        tokio::select! {
            served = serving => if let Err(error) = served {
                error!(%error, "the gRPC listener ended; the server stops");
                failed.cancel();
            },
            () = hard_stop => {}
        }
    });
    Ok(())
}

/// Connections. An accept that fails (no file descriptor left) is tried again after a moment, not at once and not never.
fn accepted(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    TcpListenerStream::new(listener).filter_map(|accepted| async {
        if let Err(error) = &accepted {
            debug!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        accepted.ok().map(Ok)
    })
}
