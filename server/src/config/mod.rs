//! The configuration: a TOML file, and the environment over it. Sits on top: it knows what it configures, and nobody below
//! imports it.
//!
//! Three sources, the later one wins: the defaults, the file, the variables `HOLDFAST_*`. `default.toml` says everything that
//! can be set; `holdfast config default` prints it. Everything is validated at once and every problem is listed, with the line
//! or variable it is from. Secrets appear in no error, in no `Debug` and, but for user, host and database, in no print.
//! Design, section 13.

mod access;
mod connections;
mod errors;
mod retention;
mod secret;
mod section;
mod services;
mod tree;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::AMQPUri;

use crate::logging::Format;
use section::{Notes, Section};

pub use access::{Auth, Tls};
pub use connections::Demand;
pub use errors::{Errors, Problem};
pub use retention::Retention;
pub use secret::Secret;
pub use section::Shown;
pub use services::{Service, Unroutable, Wake, place_of};
pub use tree::Origin;

/// The file with every setting, its default, its unit, its range and its reason.
pub const DEFAULT: &str = include_str!("default.toml");

/// What the server runs with.
#[derive(Debug)]
pub struct Config {
    /// Where gRPC is served.
    pub listen: SocketAddr,
    /// Where metrics and HTTP health are served, if at all. Nothing secret is there, and nobody is asked who he is.
    pub admin_listen: Option<SocketAddr>,
    /// How log lines look.
    pub log_format: Format,
    /// How many replicas run with this configuration. Decides nothing but the arithmetic of connections.
    pub replicas: u32,
    /// Who may call.
    pub auth: Auth,
    /// Over what calls come.
    pub tls: Tls,
    /// The control database.
    pub control: Control,
    /// RabbitMQ.
    pub broker: Broker,
    /// Where dead letters go.
    pub topology: Topology,
    /// How outboxes are drained.
    pub drain: Drain,
    /// How long what is kept.
    pub retention: Retention,
    /// The services, by name.
    pub services: BTreeMap<String, Service>,
}

/// The control database.
#[derive(Debug)]
pub struct Control {
    /// `postgres://user:password@host:port/database`.
    pub database_url: Secret,
    /// Most connections of one replica to it.
    pub max_connections: u32,
}

/// RabbitMQ.
#[derive(Debug)]
pub struct Broker {
    /// `amqp://user:password@host:port/vhost`.
    pub url: Secret,
    /// The topic exchange events are published to.
    pub exchange: String,
    /// How long a publish and its confirm may take.
    pub confirm_timeout: Duration,
    /// A dead peer is noticed after two of these.
    pub heartbeat: Duration,
}

/// Where dead letters go.
#[derive(Debug)]
pub struct Topology {
    /// The dead-letter exchange.
    pub dlx: String,
    /// The dead-letter queue; empty: somebody else's.
    pub dlq: String,
}

/// How outboxes are drained.
#[derive(Debug)]
pub struct Drain {
    /// How long a claim is good for.
    pub lease: Duration,
    /// How often to look without a hint.
    pub poll: Duration,
    /// Most rows of one claim.
    pub batch: usize,
    /// How often followers are looked for whose promotion was missed.
    pub sweep: Duration,
    /// How long a ticket must have been over before its row is swept. At least two minutes: a stage that is under way may
    /// need it for one. `testing = true` allows less.
    pub ticket_sweep_after: Duration,
    /// How often tickets are looked at for sweeping.
    pub ticket_sweep_interval: Duration,
    /// How old the oldest held event may grow before it is warned of; 0 = never. Twice of what an operation may take.
    pub held_age_warn: Duration,
    /// How often held events are looked at.
    pub held_watch: Duration,
    /// How often schemas are held against what this release expects; 0 = never, not even at start.
    pub schema_check: Duration,
}

/// Beyond any sense, and sums of a few of them still fit a clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// More connections than a PostgreSQL is good for, more replicas than a configuration.
const MOST: u32 = 1_000;

/// A valid configuration, and where it is from.
#[derive(Debug)]
pub struct Effective {
    /// What the server runs with.
    pub config: Config,
    /// Every setting, in the order of the sections.
    pub settings: Vec<Shown>,
}

impl Config {
    /// Reads and validates a TOML text alone.
    ///
    /// # Errors
    /// Every problem there is.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        Effective::of(text, []).map(|effective| effective.config)
    }

    /// Most connections that this replica opens to all databases together.
    pub fn most_connections(&self) -> u64 {
        let services = self.services.values();
        let theirs = services.map(|one| u64::from(one.max_connections) + u64::from(one.wake == Wake::Notify));
        u64::from(self.control.max_connections) + theirs.sum::<u64>()
    }

    fn read(mut top: Section<'_>) -> (Self, bool) {
        let config = Self {
            listen: top.get("listen", SocketAddr::from(([127, 0, 0, 1], 50551))),
            admin_listen: top.get("admin_listen", Some(SocketAddr::from(([127, 0, 0, 1], 50552)))),
            log_format: top.get("log_format", Format::default()),
            replicas: top.get("replicas", 2),
            auth: Auth::read(top.section("auth")),
            tls: Tls::read(top.section("tls")),
            control: Control::read(top.section("control")),
            broker: Broker::read(top.section("broker")),
            topology: Topology::read(top.section("topology")),
            drain: Drain::read(top.section("drain")),
            retention: Retention::read(top.section("retention")),
            services: top.each("services", Service::read),
        };
        // Allows settings under which events can be lost. For the project's own tests.
        (config, top.hidden("testing", false))
    }

    fn check(&self, testing: bool, notes: &mut Notes) {
        access::check(self, notes);
        if self.admin_listen.is_some_and(|admin| admin == self.listen && admin.port() != 0) {
            notes.wrong("admin_listen", "must be another address than `listen`");
        }
        if !(1..=MOST).contains(&self.replicas) {
            notes.wrong("replicas", format!("must be between 1 and {MOST}"));
        }
        self.broker.check(notes);
        self.topology.check(&self.broker, notes);
        self.drain.check(testing, notes);
        self.retention.check(notes);
        if self.broker.confirm_timeout.saturating_mul(2) > self.drain.lease
            && !notes.errors.about("broker.confirm_timeout")
            && !notes.errors.about("drain.lease")
        {
            notes.wrong("broker.confirm_timeout", "must be at most half of drain.lease");
        }
        services::check(&self.services, &self.control, notes);
    }
}

impl Effective {
    /// Puts the environment over a file's text and validates what comes of it.
    ///
    /// # Errors
    /// Every problem there is.
    pub fn of(
        text: &str,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Errors> {
        Self::read(text, environment, |_, _| {})
    }

    /// The same, and looks at what a server needs besides: there are keys, and every file that is named can be used.
    ///
    /// # Errors
    /// Every problem there is.
    pub fn for_serving(
        text: &str,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Errors> {
        Self::read(text, environment, access::check_serving)
    }

    fn read(
        text: &str,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        check: impl FnOnce(&Config, &mut Notes),
    ) -> Result<Self, Errors> {
        let mut notes = Notes::default();
        let mut tree = tree::of_toml(text, &mut notes.errors);
        tree::overlay(&mut tree, environment, &mut notes.errors);
        let (config, testing) = Config::read(Section::root(tree, &mut notes));
        config.check(testing, &mut notes);
        check(&config, &mut notes);
        if notes.errors.is_empty() {
            Ok(Self { config, settings: notes.settings })
        } else {
            Err(notes.errors)
        }
    }

    /// All of it as TOML, passwords as `***`, each setting with where it is from.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for Shown { path, value, origin } in &self.settings {
            let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
            if section != last {
                text += &format!("\n[{section}]\n");
                last = section;
            }
            text += &format!("{key} = {value}  # {origin}\n");
        }
        text
    }

    /// What somebody said, in one line: the rest are the defaults.
    pub fn said(&self) -> String {
        let said = self.settings.iter().filter(|setting| setting.origin != Origin::Default);
        said.map(|setting| format!("{}={}", setting.path, setting.value)).collect::<Vec<_>>().join(" ")
    }
}

impl Control {
    fn read(mut section: Section<'_>) -> Self {
        Self {
            database_url: section.required_secret("database_url", "database_url_file"),
            // Its own outbox is quiet; it gets what the loops need and no more.
            max_connections: section.get("max_connections", 4),
        }
    }
}

impl Broker {
    fn read(mut section: Section<'_>) -> Self {
        Self {
            url: section.required_secret("url", "url_file"),
            exchange: section.get("exchange", "holdfast.events".to_owned()),
            confirm_timeout: section.get("confirm_timeout", Duration::from_secs(30)),
            heartbeat: section.get("heartbeat", Duration::from_secs(10)),
        }
    }

    fn check(&self, notes: &mut Notes) {
        // An empty one is a placeholder; what is wrong was said.
        if let Err(problem) = self.uri()
            && !self.url.expose().is_empty()
        {
            notes.wrong("broker.url", problem);
        }
        if ShortString::try_new(self.exchange.clone()).is_err() || self.exchange.is_empty() {
            notes.wrong("broker.exchange", "must have 1 to 255 bytes");
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(60)).contains(&self.heartbeat) {
            notes.wrong("broker.heartbeat", "must be between 1s and 60s");
        }
        bounded("broker.confirm_timeout", self.confirm_timeout, notes);
    }

    /// The URL, parsed.
    ///
    /// # Errors
    /// It is no AMQP URL. The text does not repeat it.
    pub fn uri(&self) -> Result<AMQPUri, &'static str> {
        self.url.expose().parse().map_err(|_| "must be amqp://user:password@host:port/vhost")
    }
}

impl Topology {
    fn read(mut section: Section<'_>) -> Self {
        Self {
            dlx: section.get("dlx", "holdfast.dlx".to_owned()),
            dlq: section.get("dlq", "holdfast.dlq".to_owned()),
        }
    }

    fn check(&self, broker: &Broker, notes: &mut Notes) {
        if ShortString::try_new(self.dlx.clone()).is_err() || self.dlx.is_empty() {
            notes.wrong("topology.dlx", "must have 1 to 255 bytes");
        } else if self.dlx == broker.exchange {
            notes.wrong("topology.dlx", "must be another exchange than broker.exchange");
        }
        // With what is behind it a name must fit AMQP, too.
        if self.dlq.len() > 200 {
            notes.wrong("topology.dlq", "must have at most 200 bytes");
        }
    }
}

impl Drain {
    fn read(mut section: Section<'_>) -> Self {
        Self {
            lease: section.get("lease", Duration::from_secs(60)),
            poll: section.get("poll", Duration::from_secs(1)),
            batch: section.get("batch", 1_000),
            sweep: section.get("sweep", Duration::from_secs(60)),
            ticket_sweep_after: section.get("ticket_sweep_after", Duration::from_secs(120)),
            ticket_sweep_interval: section.get("ticket_sweep_interval", Duration::from_secs(30)),
            held_age_warn: section.get("held_age_warn", Duration::from_secs(7_200)),
            held_watch: section.get("held_watch", Duration::from_secs(300)),
            schema_check: section.get("schema_check", Duration::from_secs(300)),
        }
    }

    fn check(&self, testing: bool, notes: &mut Notes) {
        if !(1..=5_000).contains(&self.batch) {
            notes.wrong("drain.batch", "must be between 1 and 5000");
        }
        if self.poll < Duration::from_millis(10) {
            notes.wrong("drain.poll", "must be at least 10ms");
        }
        for (field, value) in [
            ("drain.lease", self.lease),
            ("drain.poll", self.poll),
            ("drain.sweep", self.sweep),
            ("drain.ticket_sweep_interval", self.ticket_sweep_interval),
            ("drain.held_watch", self.held_watch),
        ] {
            bounded(field, value, notes);
        }
        if self.schema_check > LONGEST {
            notes.wrong("drain.schema_check", "must be at most 1 day");
        }
        if self.ticket_sweep_after > LONGEST {
            notes.wrong("drain.ticket_sweep_after", "must be at most 1 day");
        }
        if !testing && self.ticket_sweep_after < Duration::from_secs(120) {
            notes.wrong(
                "drain.ticket_sweep_after",
                "must be at least 2m: earlier, a stage under way can lose its ticket",
            );
        }
    }
}

fn bounded(field: &str, value: Duration, notes: &mut Notes) {
    if (value > LONGEST || value.is_zero()) && !notes.errors.about(field) {
        notes.wrong(field, "must be above 0 and at most 1 day");
    }
}

#[cfg(test)]
mod tests;
