//! The wiring: from a configuration to a running server, and back down in order.
//!
//! Nothing waits for a database or the broker to be there: pools are lazy and the broker has its supervisor, so one
//! unreachable party delays nobody else's start. Design, sections 1 and 13.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use futures::{FutureExt, Stream, StreamExt};
use holdfast_proto::envelope;
use holdfast_proto::v1::control_service_server::ControlServiceServer;
use holdfast_proto::v1::hold_service_server::HoldServiceServer;
use holdfast_proto::v1::inbox_service_server::InboxServiceServer;
use holdfast_proto::v1::outbox_admin_service_server::OutboxAdminServiceServer;
use holdfast_proto::v1::outbox_service_server::OutboxServiceServer;
use prometheus::Registry;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use crate::admin_http;
use crate::audit::Audit;
use crate::auth::{Expectations, KeyFiles, Report, Verifier};
use crate::broker::{AmqpPublisher, DeadLetters, Link, LinkOptions, Topology};
use crate::check::connections;
use crate::config::{Auth, Config, Secret, Service, Tls, Unroutable, Wake};
use crate::db::{self, Pool};
use crate::grpc::{
    Admin, Authentication, Calls, ControlFront, Gate, HoldFront, InboxFront, OutboxAdminFront, OutboxFront,
    Reflection, RenameOversize, RequestId, ServiceHandle, Services, Settings, ThisReplica, probes,
};
use crate::health::Facts;
use crate::metrics::Metrics;
use crate::outbox::operator::Operator;
use crate::outbox::{OutboxRows, announced, depth, drain, holds, pause, stage};
use crate::retention::{self, Retention};
use crate::roster::{self, Counted, Known, Roster, Told};
use crate::{inbox, schema, tickets};

/// Twice the limit of a request, so that most of what is too large gets our own answer.
const MAX_DECODED_BYTES: usize = 2 * envelope::MAX_REQUEST_BYTES;
/// Streams of one connection; the protocol's library has no limit of its own.
const MAX_STREAMS: u32 = 1_024;
/// Most time for a stop; with what comes after it the process ends within 25 seconds.
const STOP_WITHIN: Duration = Duration::from_millis(24_500);
/// How long calls in flight may take to finish once the server stops.
const FRONT_GRACE: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take: who connects and says nothing is let go.
const TLS_PATIENCE: Duration = Duration::from_secs(10);
/// How long the drains are waited for before what is left is counted: by then they wait for databases that stand still.
const COUNT_AFTER: Duration = Duration::from_secs(20);
/// How long the first looks at schemas are waited for. A database that is away is not waited for any longer.
const FIRST_LOOKS: Duration = Duration::from_secs(1);
/// The same for the roster, which can refuse a start only at the start.
const ROSTER_PATIENCE: Duration = Duration::from_secs(2);
/// How long a dead letter and its confirm may take: who calls has a deadline, and can call again.
const LETTER_TIMEOUT: Duration = Duration::from_secs(8);
/// How long scrapes may take to finish; it comes on top of everything else.
const ADMIN_GRACE: Duration = Duration::from_millis(300);

/// A server that runs.
pub struct Running {
    /// Where it listens; the port is a real one even if 0 was asked for.
    pub local_addr: SocketAddr,
    /// Where the admin port is, if it is on.
    pub admin_addr: Option<SocketAddr>,
    metrics: Metrics,
    stop: Stop,
    tasks: Tasks,
    pools: Vec<Pool>,
    roster: Roster,
}

/// The order of stopping: first no new calls and no new claims, then staging, then the broker, at last the admin port, which
/// shows the rest of it.
#[derive(Clone, Default)]
struct Stop {
    front: CancellationToken,
    staging: CancellationToken,
    link: CancellationToken,
    admin: CancellationToken,
}

#[derive(Clone, Default)]
struct Tasks {
    front: TaskTracker,
    staging: TaskTracker,
    drains: TaskTracker,
    link: TaskTracker,
    admin: TaskTracker,
    failed: CancellationToken,
}

impl Tasks {
    /// Spawns a task that the server cannot be without. Should it panic, nobody would do its work and nobody would notice: the
    /// server stops, whoever supervises it starts it again, and leases heal what was in hand.
    fn spawn(&self, on: &TaskTracker, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let failed = self.failed.clone();
        on.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                error!(task = name, "a task of the server panicked; the server stops");
                failed.cancel();
            }
        });
    }
}

/// What to do about a service that the configuration leaves out and that may have something left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Not to start.
    Refuse,
    /// To say so.
    Warn,
}

/// Starts everything.
///
/// # Errors
/// The address is taken, the configuration cannot be wired, or it leaves out a service that may have something left.
pub async fn start(config: Config) -> anyhow::Result<Running> {
    Box::pin(start_with(config, Absent::Refuse)).await
}

/// The same, with a word about services that are left out.
///
/// # Errors
/// As [`start`].
pub async fn start_with(config: Config, absent: Absent) -> anyhow::Result<Running> {
    let told = Box::pin(nobody_left_out(&config, absent)).await?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let local_addr = listener.local_addr()?;
    let admin_listener = match config.admin_listen {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("admin_listen: cannot listen on {address}"))?,
        ),
        None => None,
    };
    let admin_addr = admin_listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let metrics = Metrics::new(Registry::new())?;
    let (stop, tasks) = (Stop::default(), Tasks::default());
    anyhow::ensure!(
        !config.auth.open || config.listen.ip().is_loopback(),
        "a server that asks for no token listens on a loopback address only"
    );
    let gate = gate(&config.auth, &metrics, &stop, &tasks)?;
    let tls = tls(&config.tls)?;
    let link = start_link(&config, &metrics, &stop, &tasks)?;

    let replica = ThisReplica { instance: Uuid::now_v7().to_string(), started_at: OffsetDateTime::now_utc() };
    let instance = replica.instance.clone();
    let mut handles = HashMap::new();
    let mut pools = Vec::new();
    let topology = Topology { dlx: config.topology.dlx.clone(), dlq: config.topology.dlq.clone() };
    let letters = Arc::new(DeadLetters::new(link.clone(), topology, LETTER_TIMEOUT));
    let wiring = Wiring { config: &config, metrics: &metrics, link: &link, letters, instance: &instance };
    for (name, service) in &config.services {
        let mut drain = drain::Options::new(name.clone(), instance.clone());
        drain.unroutable_accept = service.unroutable == Unroutable::Accept;
        drain.unroutable_blocks = service.unroutable_blocks;
        drain.parked_blocks = service.parked_blocks;
        let place = Place {
            url: service.database_url.expose(),
            max_connections: service.max_connections,
            prepared_statements: service.prepared_statements,
            listen: service.listens_at().map(Secret::expose),
            queues: service.consumer_queues.clone(),
            settings: settings(service),
        };
        let handle = wiring.service(name, place, drain, &stop, &tasks)?;
        pools.push(handle.pool.clone());
        handles.insert(name.clone(), handle);
    }
    let own = drain::Options::new(envelope::BUILT_IN_SERVICE.into(), instance.clone());
    let control = &config.control;
    let place = Place {
        url: control.database_url.expose(),
        max_connections: control.max_connections,
        prepared_statements: true,
        listen: None,
        queues: Vec::new(),
        settings: Settings {
            unroutable: Unroutable::default().as_str(),
            unroutable_blocks: own.unroutable_blocks,
            parked_blocks: own.parked_blocks,
            wake: Wake::Poll.as_str(),
            max_connections: control.max_connections,
            prepared_statements: true,
        },
    };
    let own = wiring.service(envelope::BUILT_IN_SERVICE, place, own, &stop, &tasks)?;
    let mut counted: HashMap<String, Pool> =
        handles.iter().map(|(name, handle)| (format!("services.{name}"), handle.pool.clone())).collect();
    counted.insert("control".to_owned(), own.pool.clone());
    let counting = connections::watch(config.demands(), config.replicas, counted, stop.front.clone());
    tasks.spawn(&tasks.drains, "arithmetic of connections", counting);
    let facts = Facts {
        listener: Arc::new(AtomicBool::new(false)),
        started: Arc::default(),
        stopping: stop.front.clone(),
        control: (own.pool.pulse().clone(), own.pool.gate().clone()),
        services: (config.services.keys())
            .filter_map(|name| {
                let pool = &handles.get(name)?.pool;
                Some((name.clone(), pool.pulse().clone(), pool.gate().clone()))
            })
            .collect(),
        weather: link.weather(),
        responsive: link.responsive(),
    };
    let services = handles.iter().map(|(name, handle)| {
        let ServiceHandle { pool, depth, .. } = handle;
        Counted { name: name.clone(), pool: pool.clone(), depth: depth.clone() }
    });
    let roster = Roster::new(own.pool.clone(), services.collect(), told);
    tasks.spawn(&tasks.staging, "roster", roster.clone().run(stop.staging.clone()));
    let admin = Admin::new(Audit::new(own.pool.clone()), metrics.auth().clone());
    pools.push(own.pool);
    let refreshed = pools.clone();
    metrics.before_scrape(move || refreshed.iter().for_each(Pool::refresh_metrics));
    metrics.connections_configured().set(i64::try_from(config.most_connections()).unwrap_or(i64::MAX));

    let services = Services::new(handles);
    let reflection = config.auth.reflection;
    let front = Front { replica, services, facts, metrics: metrics.clone(), admin, gate, reflection, tls };
    if let Some(listener) = admin_listener {
        let admin = admin_http::Admin::new(metrics.clone(), front.facts.clone());
        tasks.spawn(&tasks.admin, "admin port", admin.run(listener, stop.admin.clone()));
    }
    // Most databases answer within milliseconds, and then no call meets a schema that nobody has looked at.
    let first_looks = join_all(pools.iter().map(|pool| pool.gate().first_look()));
    let _ = tokio::time::timeout(FIRST_LOOKS, first_looks).await;
    serve(listener, local_addr, front, &stop, &tasks).await?;
    let admin = admin_addr.map(|address| address.to_string()).unwrap_or_default();
    info!(
        listen.addr = %local_addr,
        admin.addr = admin,
        services = config.services.len(),
        database.connections = config.most_connections(),
        version = env!("CARGO_PKG_VERSION"),
        "listening"
    );
    Ok(Running { local_addr, admin_addr, metrics, stop, tasks, pools, roster })
}

/// What was told of the roster: whether it could be asked, and who is left out all the same.
///
/// # Errors
/// A service is left out that may have something left.
async fn nobody_left_out(config: &Config, absent: Absent) -> anyhow::Result<Told> {
    let control = Pool::new(&db::Options {
        url: config.control.database_url.expose().to_owned(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: ROSTER_PATIENCE,
    })
    .context("control.database_url")?;
    let names: Vec<String> = config.services.keys().cloned().collect();
    let asked = async {
        let left: Vec<_> =
            roster::absent(&control, &names).await?.into_iter().filter(Known::has_left).collect();
        // Who is refused changes nothing.
        if left.is_empty() || absent == Absent::Warn {
            roster::meet(&control, &names).await?;
        }
        Ok(left)
    };
    let asked = db::within(ROSTER_PATIENCE, Box::pin(asked)).await;
    let _ = tokio::time::timeout(ADMIN_GRACE, control.close(ADMIN_GRACE)).await;
    let left = match asked {
        Ok(left) => left,
        Err(error) => {
            // Staging and draining need no control database.
            info!(%error, "the roster of services cannot be asked now; services left out are looked for later");
            let mut told = Told::default();
            told.failed(&error);
            return Ok(told);
        }
    };
    if absent == Absent::Warn {
        for one in &left {
            warn!(service.name = %one.name, undelivered = one.undelivered, "{}", roster::LEFT_OUT);
        }
    } else if !left.is_empty() {
        let left: Vec<String> = left.iter().map(ToString::to_string).collect();
        anyhow::bail!(
            "the configuration leaves out what was served before and may have undelivered events, which nobody would drain: {}. \
             Put it back until it is empty, or take it off with `holdfast forget-service NAME`, or start with --force",
            left.join(", ")
        );
    }
    let left_out = left.into_iter().map(|one| one.name).collect();
    Ok(Told { looked: true, left_out, refused: false })
}

/// Who is let in. The key files are watched until the server stops.
fn gate(auth: &Auth, metrics: &Metrics, stop: &Stop, tasks: &Tasks) -> anyhow::Result<Gate> {
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
fn tls(tls: &Tls) -> anyhow::Result<Option<ServerTlsConfig>> {
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

fn start_link(config: &Config, metrics: &Metrics, stop: &Stop, tasks: &Tasks) -> anyhow::Result<Link> {
    let options = LinkOptions {
        uri: config.broker.uri().map_err(anyhow::Error::msg)?,
        exchange: config.broker.exchange.as_str().into(),
        heartbeat: config.broker.heartbeat,
        connect_timeout: Duration::from_secs(10),
    };
    let (link, supervisor) = Link::start(options, metrics.broker().clone(), stop.link.clone());
    tasks.spawn(&tasks.link, "broker link", supervisor);
    Ok(link)
}

/// A service's database, and the ways to it.
struct Place<'a> {
    url: &'a str,
    max_connections: u32,
    prepared_statements: bool,
    /// Where to listen for announcements, if at all.
    listen: Option<&'a str>,
    /// What is consumed from.
    queues: Vec<String>,
    settings: Settings,
}

fn settings(service: &Service) -> Settings {
    Settings {
        unroutable: service.unroutable.as_str(),
        unroutable_blocks: service.unroutable_blocks,
        parked_blocks: service.parked_blocks,
        wake: service.wake.as_str(),
        max_connections: service.max_connections,
        prepared_statements: service.prepared_statements,
    }
}

struct Wiring<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    link: &'a Link,
    letters: Arc<DeadLetters>,
    instance: &'a str,
}

impl Wiring<'_> {
    /// One service: its pool, its stager, its resolver, its drainer. They share nothing with another service's.
    fn service(
        &self,
        name: &str,
        place: Place<'_>,
        mut drain: drain::Options,
        stop: &Stop,
        tasks: &Tasks,
    ) -> anyhow::Result<ServiceHandle> {
        let metrics = self.metrics.service(name);
        let pool = Pool::new(&db::Options {
            url: place.url.to_owned(),
            max_connections: place.max_connections,
            prepared_statements: place.prepared_statements,
            acquire_timeout: Duration::from_secs(5),
        })
        .with_context(|| format!("services.{name}.database_url"))?
        .measured(metrics.pool.clone());
        metrics.pool.configured.set(i64::from(place.max_connections) + i64::from(place.listen.is_some()));

        let of = if name == envelope::BUILT_IN_SERVICE { schema::Of::Control } else { schema::Of::Service };
        let options =
            schema::Options { interval: self.config.drain.schema_check, ..schema::Options::default() };
        let watch = schema::Watch::new(name.to_owned(), pool.clone(), of, options, metrics.schema.clone());
        tasks.spawn(&tasks.staging, "schema", watch.run(stop.staging.clone()));

        let stage_options = stage::Options::new(envelope::source(name));
        let (stager, stage_worker) = stage::Stager::new(pool.clone(), stage_options, metrics.clone());
        tasks.spawn(&tasks.staging, "staging", stage_worker.run(stop.staging.clone()));

        let resolved = Arc::new(Notify::new());
        let resolver_options = tickets::Options {
            sweep_after: self.config.drain.ticket_sweep_after,
            sweep_interval: self.config.drain.ticket_sweep_interval,
            ..tickets::Options::default()
        };
        let paused = pause::Seen::new(metrics.drain.clone());
        let (rows, looks) = OutboxRows::new(self.config.drain.lease, paused.clone());
        let (inbox, inbox_rows) =
            inbox::Desk::new(pool.clone(), metrics.clone(), place.queues, self.letters.clone());
        let depth = inbox::Depth::new(pool.clone(), metrics.inbox.clone());
        tasks.spawn(&tasks.staging, "inbox depth", depth.run(stop.staging.clone()));
        let tables: Vec<Arc<dyn tickets::Resolvable>> = vec![Arc::new(rows), Arc::new(inbox_rows)];
        let (resolver, resolver_hints) =
            tickets::Resolver::new(pool.clone(), tables, resolver_options, metrics.clone(), resolved.clone());
        tasks.spawn(&tasks.staging, "resolver", resolver.run(stop.staging.clone()));

        let (depth, latest) =
            depth::Depth::new(pool.clone(), depth::Options::default(), metrics.depth.clone());
        tasks.spawn(&tasks.staging, "depth", depth.run(stop.staging.clone()));

        if let Some(url) = place.listen {
            let options = announced::Options::new(name.to_owned(), url.to_owned());
            let announced = announced::Announced::new(pool.clone(), options, resolved.clone());
            tasks.spawn(&tasks.drains, "listener", announced.run(stop.front.clone()));
        }

        drain.instance = self.instance.to_owned();
        drain.lease = self.config.drain.lease;
        drain.poll = self.config.drain.poll;
        drain.batch = self.config.drain.batch;
        drain.sweep = self.config.drain.sweep;
        let options = drain.clone();
        let publisher = Arc::new(AmqpPublisher::new(self.link.clone(), self.config.broker.confirm_timeout));
        let (drainer, drain_hints) = drain::Drainer::new(
            pool.clone(),
            publisher,
            drain,
            metrics.clone(),
            resolver_hints,
            resolved,
            looks,
        );
        tasks.spawn(&tasks.drains, "drainer", drainer.run(stop.front.clone()));

        let operator = Operator::new(pool.clone(), metrics.clone(), &options, paused, drain_hints.clone());
        let holds = holds::Desk::new(pool.clone(), metrics.clone(), drain_hints.clone());
        let watch_options = holds::watch::Options {
            interval: self.config.drain.held_watch,
            age_warn: self.config.drain.held_age_warn,
            ..holds::watch::Options::default()
        };
        let watch = holds::watch::Watch::new(holds.clone(), watch_options);
        tasks.spawn(&tasks.staging, "held watch", watch.run(stop.staging.clone()));

        let kept = &self.config.retention;
        let windows = retention::Windows { outbox: kept.outbox, inbox: kept.inbox };
        let retention_options = retention::Options::new(windows, kept.interval, kept.most);
        let retention = Retention::new(pool.clone(), retention_options, metrics.clone());
        tasks.spawn(&tasks.drains, "retention", retention.run(stop.front.clone()));
        Ok(ServiceHandle {
            pool,
            stager,
            drain: drain_hints,
            holds,
            inbox,
            operator,
            metrics,
            depth: latest,
            settings: place.settings,
        })
    }
}

/// What the front answers from.
struct Front {
    replica: ThisReplica,
    services: Services,
    facts: Facts,
    metrics: Metrics,
    admin: Admin,
    gate: Gate,
    reflection: Reflection,
    tls: Option<ServerTlsConfig>,
}

async fn serve(
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
        .add_service(outbox);
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

impl Running {
    /// Everything in Prometheus' text format.
    ///
    /// # Errors
    /// What was gathered cannot be written down.
    pub fn metrics_text(&self) -> anyhow::Result<String> {
        Ok(self.metrics.text()?)
    }

    /// Ends when a task that the server cannot be without has panicked: then it must be stopped.
    pub async fn failed(&self) {
        self.tasks.failed.cancelled().await;
    }

    /// Stops in order: NOT_SERVING, no new calls, no new claims; calls in flight and confirms finish, within their grace;
    /// then staging, the broker and the pools. Takes at most 25 seconds.
    pub async fn stop(self) {
        info!("stopping: no new calls and no new claims");
        self.stop.front.cancel();
        for tracker in
            [&self.tasks.front, &self.tasks.drains, &self.tasks.staging, &self.tasks.link, &self.tasks.admin]
        {
            tracker.close();
        }
        let front_and_staging = async {
            self.tasks.front.wait().await;
            self.stop.staging.cancel();
            self.tasks.staging.wait().await;
        };
        let all = async {
            let drains = tokio::time::timeout(COUNT_AFTER, self.tasks.drains.wait());
            let _ = tokio::join!(front_and_staging, drains);
            // Beside the end of a drain that waits for a stalled database, which must not make the stop longer still.
            tokio::join!(self.tasks.drains.wait(), self.roster.last_count());
            self.stop.link.cancel();
            self.tasks.link.wait().await;
            // All at once: each may have a connection that does not come back.
            join_all(self.pools.iter().map(|pool| pool.close(Duration::from_millis(500)))).await;
        };
        if tokio::time::timeout(STOP_WITHIN, all).await.is_err() {
            warn!("stopped hard after {STOP_WITHIN:?}; claims heal by their lease");
        }
        self.stop.admin.cancel();
        // An answer takes milliseconds; whoever is still there then ends with the process.
        let _ = tokio::time::timeout(ADMIN_GRACE, self.tasks.admin.wait()).await;
        info!("stopped");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "the panic is what is tested")]
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_stops_the_server_and_one_that_ends_does_not() {
        let tasks = Tasks::default();
        tasks.spawn(&tasks.link, "quiet", async {});
        tasks.link.close();
        tasks.link.wait().await;
        assert!(!tasks.failed.is_cancelled());

        tasks.spawn(&tasks.drains, "loud", async { panic!("on purpose") });
        tasks.failed.cancelled().await;
    }
}
