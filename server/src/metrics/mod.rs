//! Metrics, declared once, by area; the help text is the documentation (`docs/metrics.md` is made of it). The registry is
//! passed in, so that two servers can run in one process. Labels are bounded: services and tables are configured or ours,
//! the first 200 event types of a service have their own series ([`labels`]), methods are those that are served.
//! Does not: hold anything secret, or ask a database. Design, section 14.

mod auth;
mod broker;
mod db;
mod declare;
mod depth;
mod drain;
mod grpc;
mod holds;
mod inbox;
mod jobs;
mod labels;
mod retention;
mod schema;
mod staging;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, Registry, TextEncoder};

pub use auth::Auth;
pub use broker::Broker;
pub use db::{Pool, Waiting};
pub use declare::Entry;
pub use depth::Depth;
pub use drain::Drain;
pub use grpc::Grpc;
pub use holds::Holds;
pub use inbox::Inbox;
pub use jobs::Jobs;
pub use retention::Retention;
pub use schema::Schema;
pub use staging::{Stage, Tickets};

use declare::Declare;
use labels::TypeLabels;

/// All metrics of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

type Refresh = Box<dyn Fn() + Send + Sync>;

struct Inner {
    registry: Registry,
    catalogue: Vec<Entry>,
    refresh: Mutex<Vec<Refresh>>,
    staging: staging::Families,
    drain: drain::Families,
    depth: depth::Families,
    holds: holds::Families,
    inbox: inbox::Families,
    jobs: jobs::Families,
    retention: retention::Families,
    schema: schema::Families,
    db: db::Families,
    broker: Broker,
    grpc: Grpc,
    auth: Auth,
    connections_configured: IntGauge,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("families", &self.catalogue.len()).finish_non_exhaustive()
    }
}

/// The metrics of one service, its label already applied.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    service: String,
    /// Staging.
    pub stage: Stage,
    /// Tickets and verdicts.
    pub tickets: Tickets,
    /// Claims, publishes and outcomes.
    pub drain: Drain,
    /// What lies in the database.
    pub depth: Depth,
    /// What is held.
    pub holds: Holds,
    /// What is consumed.
    pub inbox: Inbox,
    /// What is done slice by slice.
    pub jobs: Jobs,
    /// What was pruned.
    pub retention: Retention,
    /// What its schema looks like.
    pub schema: Schema,
    /// Connections to it.
    pub pool: Pool,
}

impl ServiceMetrics {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }
}

impl Metrics {
    /// Declares everything in `registry`.
    ///
    /// # Errors
    /// A name is taken already.
    pub fn new(registry: Registry) -> Result<Self, prometheus::Error> {
        let mut d = Declare::into(&registry);
        let staging = staging::Families::declare(&mut d)?;
        let drain = drain::Families::declare(&mut d)?;
        let depth = depth::Families::declare(&mut d)?;
        let holds = holds::Families::declare(&mut d)?;
        let inbox = inbox::Families::declare(&mut d)?;
        let jobs = jobs::Families::declare(&mut d)?;
        let retention = retention::Families::declare(&mut d)?;
        let schema = schema::Families::declare(&mut d)?;
        let db = db::Families::declare(&mut d)?;
        let broker = Broker::declare(&mut d)?;
        let grpc = Grpc::declare(&mut d)?;
        let auth = Auth::declare(&mut d)?;
        let connections_configured = d.gauge(
            "connections_configured",
            "Most connections that this replica opens to all databases together.",
        )?;
        d.gauges("build_info", "1; the version that runs is in the label.", &["version"])?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        d.foreign(ProcessCollector::for_self())?;
        let catalogue = d.catalogue();
        let refresh = Mutex::default();
        Ok(Self(Arc::new(Inner {
            registry,
            catalogue,
            refresh,
            staging,
            drain,
            depth,
            holds,
            inbox,
            jobs,
            retention,
            schema,
            db,
            broker,
            grpc,
            auth,
            connections_configured,
        })))
    }

    /// The metrics of one configured service.
    pub fn service(&self, service: &str) -> ServiceMetrics {
        let types = TypeLabels::default();
        ServiceMetrics {
            service: service.to_owned(),
            stage: self.0.staging.stage(service, &types),
            tickets: self.0.staging.tickets(service),
            drain: self.0.drain.service(service, &types),
            depth: self.0.depth.service(service),
            holds: self.0.holds.service(service),
            inbox: self.0.inbox.service(service),
            jobs: self.0.jobs.service(service),
            retention: self.0.retention.service(service),
            schema: self.0.schema.service(service),
            pool: self.0.db.service(service),
        }
    }

    /// The publishing connection's.
    pub fn broker(&self) -> &Broker {
        &self.0.broker
    }

    /// The front's.
    pub fn grpc(&self) -> &Grpc {
        &self.0.grpc
    }

    /// Tokens, keys and admins.
    pub fn auth(&self) -> &Auth {
        &self.0.auth
    }

    /// Most connections of this replica to all databases together.
    pub fn connections_configured(&self) -> &IntGauge {
        &self.0.connections_configured
    }

    /// Run before each scrape, for gauges that somebody else knows. Must not wait for anything.
    pub fn before_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// Everything that is declared, whether it has samples or not.
    pub fn catalogue(&self) -> &[Entry] {
        &self.0.catalogue
    }

    /// Everything in Prometheus' text format.
    ///
    /// # Errors
    /// What was gathered cannot be written down.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|refresh| refresh());
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }
}
