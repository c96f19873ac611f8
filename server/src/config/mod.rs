//! The configuration: one TOML file. Sits on top: it knows what it configures, and nobody below imports it.
//!
//! Everything is validated at once and every problem is listed. Secrets never appear in an error or in `Debug`.
//! Design, section 13.

mod services;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use serde::Deserialize;

use crate::logging::Format;

pub use services::{Service, Unroutable, Wake};

/// What the server runs with.
#[derive(Debug)]
pub struct Config {
    /// Where gRPC is served. Loopback only: there is no authentication yet.
    pub listen: SocketAddr,
    /// How log lines look.
    pub log_format: Format,
    /// The control database.
    pub control: Control,
    /// RabbitMQ.
    pub broker: Broker,
    /// How outboxes are drained.
    pub drain: Drain,
    /// The services, by name.
    pub services: BTreeMap<String, Service>,
}

/// The control database.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// `postgres://user:password@host:port/database`.
    pub database_url: Secret,
    /// Most connections of one replica to it.
    #[serde(default = "default_control_connections")]
    pub max_connections: u32,
}

/// RabbitMQ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// `amqp://user:password@host:port/vhost`.
    pub url: Secret,
    /// The topic exchange events are published to.
    #[serde(default = "default_exchange")]
    pub exchange: String,
    /// How long a publish and its confirm may take.
    #[serde(default = "default_confirm_timeout", with = "humantime_serde")]
    pub confirm_timeout: Duration,
    /// A dead peer is noticed after two of these.
    #[serde(default = "default_heartbeat", with = "humantime_serde")]
    pub heartbeat: Duration,
}

/// How outboxes are drained.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// How long a claim is good for.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// How often to look without a hint.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// Most rows of one claim.
    pub batch: usize,
    /// How often followers are looked for whose promotion was missed.
    #[serde(with = "humantime_serde")]
    pub sweep: Duration,
    /// How long a ticket must have been over before its row is swept. At least two minutes: a stage that is under way may
    /// need it for one. `testing = true` allows less.
    #[serde(with = "humantime_serde")]
    pub ticket_sweep_after: Duration,
    /// How often tickets are looked at for sweeping.
    #[serde(with = "humantime_serde")]
    pub ticket_sweep_interval: Duration,
    /// How old the oldest held event may grow before it is warned of; 0 = never. Twice of what an operation may take.
    #[serde(with = "humantime_serde")]
    pub held_age_warn: Duration,
    /// How often held events are looked at.
    #[serde(with = "humantime_serde")]
    pub held_watch: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            batch: 1_000,
            sweep: Duration::from_secs(60),
            ticket_sweep_after: Duration::from_secs(120),
            ticket_sweep_interval: Duration::from_secs(30),
            held_age_warn: Duration::from_secs(7_200),
            held_watch: Duration::from_secs(300),
        }
    }
}

/// Beyond any sense, and sums of a few of them still fit a clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The control database's own outbox is quiet; it gets what the loops need and no more.
fn default_control_connections() -> u32 {
    4
}

fn default_exchange() -> String {
    "holdfast.events".into()
}

fn default_confirm_timeout() -> Duration {
    Duration::from_secs(30)
}

fn default_heartbeat() -> Duration {
    Duration::from_secs(10)
}

/// A URL that may hold a password; never printed.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value, for whoever connects with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Everything that is wrong with a configuration, by field.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Errors(Vec<String>);

impl Errors {
    fn push(&mut self, field: &str, problem: impl fmt::Display) {
        self.0.push(format!("{field}: {problem}"));
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} problem(s)", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Errors {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_listen")]
    listen: SocketAddr,
    #[serde(default)]
    log_format: Format,
    control: Control,
    broker: Broker,
    #[serde(default)]
    drain: Drain,
    /// Allows settings under which events can be lost. For the project's own tests.
    #[serde(default)]
    testing: bool,
    services: BTreeMap<String, Service>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 50551))
}

impl Config {
    /// Reads and validates a TOML text.
    ///
    /// # Errors
    /// Every problem there is.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        let file: File = toml::from_str(text).map_err(|error| {
            let mut errors = Errors::default();
            // The parser's own picture of the line would show a URL with its password.
            let at =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            errors.push(&format!("line {at}"), error.message());
            errors
        })?;
        let mut errors = Errors::default();
        let config = Self {
            listen: file.listen,
            log_format: file.log_format,
            control: file.control,
            broker: file.broker,
            drain: file.drain,
            services: file.services,
        };
        config.check(&mut errors);
        if !file.testing && config.drain.ticket_sweep_after < Duration::from_secs(120) {
            errors.push(
                "drain.ticket_sweep_after",
                "must be at least 2m: earlier, a stage under way can lose its ticket",
            );
        }
        if errors.0.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// Most connections that this replica opens to all databases together.
    pub fn most_connections(&self) -> u64 {
        let services = self.services.values();
        let theirs = services.map(|one| u64::from(one.max_connections) + u64::from(one.wake == Wake::Notify));
        u64::from(self.control.max_connections) + theirs.sum::<u64>()
    }

    fn check(&self, errors: &mut Errors) {
        if !self.listen.ip().is_loopback() {
            errors.push("listen", "must be a loopback address: calls are not authenticated yet");
        }
        if let Err(problem) = self.broker.uri() {
            errors.push("broker.url", problem);
        }
        if ShortString::try_new(self.broker.exchange.clone()).is_err() || self.broker.exchange.is_empty() {
            errors.push("broker.exchange", "must have 1 to 255 bytes");
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(60)).contains(&self.broker.heartbeat) {
            errors.push("broker.heartbeat", "must be between 1s and 60s");
        }
        if self.broker.confirm_timeout.saturating_mul(2) > self.drain.lease {
            errors.push("broker.confirm_timeout", "must be at most half of drain.lease");
        }
        if !(1..=5_000).contains(&self.drain.batch) {
            errors.push("drain.batch", "must be between 1 and 5000");
        }
        if self.drain.poll < Duration::from_millis(10) {
            errors.push("drain.poll", "must be at least 10ms");
        }
        for (field, value) in [
            ("broker.confirm_timeout", self.broker.confirm_timeout),
            ("drain.lease", self.drain.lease),
            ("drain.poll", self.drain.poll),
            ("drain.sweep", self.drain.sweep),
            ("drain.ticket_sweep_interval", self.drain.ticket_sweep_interval),
            ("drain.held_watch", self.drain.held_watch),
        ] {
            if value > LONGEST || value.is_zero() {
                errors.push(field, "must be above 0 and at most 1 day");
            }
        }
        if self.drain.ticket_sweep_after > LONGEST {
            errors.push("drain.ticket_sweep_after", "must be at most 1 day");
        }
        services::check(&self.services, &self.control, errors);
    }
}

impl Broker {
    /// The URL, parsed.
    ///
    /// # Errors
    /// It is no AMQP URL. The text does not repeat it.
    pub fn uri(&self) -> Result<AMQPUri, &'static str> {
        self.url.expose().parse().map_err(|_| "must be amqp://user:password@host:port/vhost")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const GOOD: &str = r#"
        [control]
        database_url = "postgres://holdfast:hunter2@db/control"
        [broker]
        url = "amqp://holdfast:hunter2@mq:5672/%2f"
        [services.orders]
        database_url = "postgres://holdfast:hunter2@db/orders"
    "#;

    #[test]
    fn the_smallest_file_is_valid_and_its_secrets_are_not_printed() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.listen, "127.0.0.1:50551".parse().unwrap());
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn the_file_in_the_readme_shows_the_defaults() {
        let readme = include_str!("../../../README.md");
        let shown = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        // Secrets are shown alike.
        let [shown, default] = [shown, GOOD].map(|text| format!("{:#?}", Config::parse(text).unwrap()));
        assert_eq!(shown, default);
    }

    #[test]
    fn the_connections_of_a_replica_are_summed_up() {
        let config = Config::parse(&format!(
            "{GOOD}\nwake = \"notify\"\n[services.billing]\ndatabase_url = \"postgres://h@db/billing\"\nmax_connections = 2"
        ));
        assert_eq!(config.unwrap().most_connections(), 4 + (8 + 1) + 2);
        let text = Config::parse(&format!("{GOOD}\nmax_connections = 1\nlisten_url = \"db\""))
            .unwrap_err()
            .to_string();
        for field in ["max_connections", "listen_url"] {
            assert!(text.contains(&format!("services.orders.{field}")), "{text}");
        }
    }

    #[test]
    fn listening_through_a_pooler_is_refused() {
        let pooled = format!("{GOOD}\nprepared_statements = false\nwake = \"notify\"");
        let text = Config::parse(&pooled).unwrap_err().to_string();
        assert!(text.contains("services.orders.listen_url") && text.contains("pooler"), "{text}");
        assert!(Config::parse(&format!("{pooled}\nlisten_url = \"postgres://h@db/orders\"")).is_ok());
    }

    #[test]
    fn every_problem_is_listed_at_once() {
        let bad = GOOD
            .replace("[control]", "listen = \"0.0.0.0:1\"\n[drain]\nbatch = 0\n[control]")
            .replace("services.orders", "services.Holdfast")
            .replace("amqp://", "http://");
        let text = Config::parse(&bad).unwrap_err().to_string();
        for field in ["listen:", "drain.batch:", "services.Holdfast:", "broker.url:"] {
            assert!(text.contains(field), "{field} in {text}");
        }
        assert!(!text.contains("hunter2"));
    }

    #[test]
    fn a_sweep_that_could_lose_a_ticket_is_refused_outside_of_tests() {
        let short = format!("{GOOD}\n[drain]\nticket_sweep_after = \"5s\"");
        let text = Config::parse(&short).unwrap_err().to_string();
        assert!(text.contains("drain.ticket_sweep_after"), "{text}");
        assert!(Config::parse(&format!("testing = true\n{short}")).is_ok());
    }

    #[test]
    fn a_duration_beyond_any_sense_is_refused_and_does_not_panic() {
        for field in ["lease", "poll", "sweep"] {
            let text = Config::parse(&format!("{GOOD}\n[drain]\n{field} = \"500000years\""))
                .unwrap_err()
                .to_string();
            assert!(text.contains(&format!("drain.{field}")), "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_its_line_and_shows_no_secret() {
        let text = Config::parse(&GOOD.replace("[broker]", "[broker]\nlikn = 1")).unwrap_err().to_string();
        assert!(text.contains("likn") && text.contains("line"), "{text}");
        assert!(!text.contains("hunter2"));
    }

    #[test]
    fn a_database_url_needs_its_scheme_host_and_database() {
        for bad in [
            "mysql://h@db/orders",
            "postgres:/h@db/orders",
            "postgres://h@db",
            "postgres:///orders",
            "db/orders",
        ] {
            let text = Config::parse(&GOOD.replace("postgres://holdfast:hunter2@db/orders", bad))
                .unwrap_err()
                .to_string();
            assert!(text.contains("services.orders.database_url"), "{bad}: {text}");
        }
    }

    #[test]
    fn two_services_in_one_database_are_refused() {
        let twice =
            format!("{GOOD}\n[services.billing]\ndatabase_url = \"postgres://holdfast:hunter2@db/orders\"");
        let text = Config::parse(&twice).unwrap_err().to_string();
        assert!(text.contains("services.orders") && text.contains("services.billing"), "{text}");
    }
}
