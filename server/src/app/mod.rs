//! The wiring: from a configuration to a running server, and back down in order.
//!
//! Nothing waits for a database or the broker to be there: pools are lazy and the broker has its supervisor, so one
//! unreachable party delays nobody else's start. Design, sections 1 and 13.

mod front;
mod left_out;
mod service;
mod tasks;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use holdfast_proto::envelope;
use prometheus::Registry;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tracing::{info, warn};
use uuid::Uuid;

use crate::admin_http;
use crate::audit::Audit;
use crate::broker::{DeadLetters, Link, LinkOptions, Topology};
use crate::check::connections;
use crate::config::{Config, Secret, Unroutable, Wake};
use crate::db::Pool;
use crate::grpc::{Admin, ServiceHandle, Services, Settings, ThisReplica};
use crate::health::Facts;
use crate::metrics::Metrics;
use crate::outbox::drain;
use crate::roster::{Counted, Roster};
use front::Front;
use service::{Place, Wiring};
use tasks::{Stop, Tasks};

/// Most time for a stop; with what comes after it the process ends within 25 seconds.
const STOP_WITHIN: Duration = Duration::from_millis(24_500);
/// How long the drains are waited for before what is left is counted: by then they wait for databases that stand still.
const COUNT_AFTER: Duration = Duration::from_secs(20);
/// How long the first looks at schemas are waited for. A database that is away is not waited for any longer.
const FIRST_LOOKS: Duration = Duration::from_secs(1);
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
    let told = Box::pin(left_out::nobody_left_out(&config, absent)).await?;
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
    let gate = front::gate(&config.auth, &metrics, &stop, &tasks)?;
    let tls = front::tls(&config.tls)?;
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
            settings: service::settings(service),
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
    front::serve(listener, local_addr, front, &stop, &tasks).await?;
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
