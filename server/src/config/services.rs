//! The part of the configuration that is said for each service.

use std::collections::BTreeMap;
use std::str::FromStr;

use holdfast_proto::envelope;
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;

use super::{Control, Errors, Secret};

/// One service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// `postgres://user:password@host:port/database`, the service's own.
    pub database_url: Secret,
    /// Most connections of one replica to it. At least 2; with fewer than 4 staging, drain and verdicts wait for each other
    /// at times.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// What to do about an event that no queue takes.
    #[serde(default)]
    pub unroutable: Unroutable,
    /// Whether such an event holds later ones of its key back.
    #[serde(default = "yes")]
    pub unroutable_blocks: bool,
    /// Whether a parked event holds later ones of its key back.
    #[serde(default = "yes")]
    pub parked_blocks: bool,
    /// How events that were put in by SQL are noticed. `holdfast migrate` switches their announcement on or off accordingly.
    #[serde(default)]
    pub wake: Wake,
    /// Whether statements are prepared by name. `false` behind a pooler that lends connections by the transaction (pgbouncer
    /// with `pool_mode = transaction`).
    #[serde(default = "yes")]
    pub prepared_statements: bool,
    /// Where to listen for announcements, if not at `database_url`.
    #[serde(default)]
    pub listen_url: Option<Secret>,
}

impl Service {
    /// Where to listen for announcements, if at all.
    pub fn listens_at(&self) -> Option<&Secret> {
        (self.wake == Wake::Notify).then(|| self.listen_url.as_ref().unwrap_or(&self.database_url))
    }
}

/// How events that were put in by SQL are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// By the poll alone.
    #[default]
    Poll,
    /// At once, by `LISTEN` on a connection of its own; the poll stays as the floor. Transactions that insert events commit one
    /// after the other then.
    Notify,
}

impl Wake {
    /// As it is configured.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Notify => "notify",
        }
    }
}

impl Unroutable {
    /// As it is configured.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Accept => "accept",
        }
    }
}

/// What to do about an event that no queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unroutable {
    /// It stays pending and is tried again.
    #[default]
    Retry,
    /// It counts as published.
    Accept,
}

/// Staging and two repairs of it, a pass, a settle, the resolver, look-ups.
fn default_max_connections() -> u32 {
    8
}

fn yes() -> bool {
    true
}

const NO_DATABASE_URL: &str = "must be postgres://user:password@host:port/database";

/// The library takes any scheme, and a missing host for this machine's.
fn parse(url: &str) -> Option<PgConnectOptions> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let options = PgConnectOptions::from_str(url).ok()?;
    (!rest.starts_with('/') && options.get_database().is_some()).then_some(options)
}

pub(super) fn check(services: &BTreeMap<String, Service>, control: &Control, errors: &mut Errors) {
    let mut databases: BTreeMap<String, String> = BTreeMap::new();
    let mut database = |field: String, url: &Secret, errors: &mut Errors| match parse(url.expose()) {
        None => errors.push(&field, NO_DATABASE_URL),
        Some(options) => {
            let place = format!(
                "{}:{}/{}",
                options.get_host(),
                options.get_port(),
                options.get_database().unwrap_or_default()
            );
            if let Some(other) = databases.insert(place, field.clone()) {
                errors.push(&field, format!("is the same database as {other}; each service has its own"));
            }
        }
    };
    database("control.database_url".into(), &control.database_url, errors);
    if control.max_connections == 0 {
        errors.push("control.max_connections", "must be at least 1");
    }
    for (name, service) in services {
        let field = format!("services.{name}");
        if let Some(problem) = envelope::service_name_problem(name) {
            errors.push(&field, problem);
        }
        if service.max_connections < 2 {
            errors.push(
                &format!("{field}.max_connections"),
                "must be at least 2: staging does not wait for the drain",
            );
        }
        database(format!("{field}.database_url"), &service.database_url, errors);
        if service.wake == Wake::Notify && !service.prepared_statements && service.listen_url.is_none() {
            errors.push(
                &format!("{field}.listen_url"),
                "must name the database itself: LISTEN does not work through a transaction-mode pooler",
            );
        }
        if service.listen_url.as_ref().is_some_and(|url| parse(url.expose()).is_none()) {
            errors.push(&format!("{field}.listen_url"), NO_DATABASE_URL);
        }
    }
}
