//! The part of the configuration that is said for each service.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use holdfast_proto::envelope;
use sqlx::postgres::PgConnectOptions;

use super::section::{Notes, Section};
use super::{Control, MOST, Secret};

/// One service.
#[derive(Debug)]
pub struct Service {
    /// `postgres://user:password@host:port/database`, the service's own.
    pub database_url: Secret,
    /// Most connections of one replica to it. At least 2; with fewer than 4 staging, drain and verdicts wait for each other
    /// at times.
    pub max_connections: u32,
    /// What to do about an event that no queue takes.
    pub unroutable: Unroutable,
    /// Whether such an event holds later ones of its key back.
    pub unroutable_blocks: bool,
    /// Whether a parked event holds later ones of its key back.
    pub parked_blocks: bool,
    /// How events that were put in by SQL are noticed. `holdfast migrate` switches their announcement on or off accordingly.
    pub wake: Wake,
    /// The queues that the service consumes from.
    pub consumer_queues: Vec<String>,
    /// Whether statements are prepared by name. `false` behind a pooler that lends connections by the transaction (pgbouncer
    /// with `pool_mode = transaction`).
    pub prepared_statements: bool,
    /// Where to listen for announcements, if not at `database_url`.
    pub listen_url: Option<Secret>,
}

impl Service {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            database_url: section.required_secret("database_url", "database_url_file"),
            // Staging and two repairs of it, a pass, a settle, the resolver, look-ups.
            max_connections: section.get("max_connections", 8),
            unroutable: section.get("unroutable", Unroutable::default()),
            unroutable_blocks: section.get("unroutable_blocks", true),
            parked_blocks: section.get("parked_blocks", true),
            wake: section.get("wake", Wake::default()),
            consumer_queues: section.get("consumer_queues", Vec::new()),
            prepared_statements: section.get("prepared_statements", true),
            listen_url: section.secret("listen_url", "listen_url_file"),
        }
    }

    /// Where to listen for announcements, if at all.
    pub fn listens_at(&self) -> Option<&Secret> {
        (self.wake == Wake::Notify).then(|| self.listen_url.as_ref().unwrap_or(&self.database_url))
    }
}

/// How events that were put in by SQL are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unroutable {
    /// It stays pending and is tried again.
    #[default]
    Retry,
    /// It counts as published.
    Accept,
}

const NO_DATABASE_URL: &str = "must be postgres://user:password@host:port/database";

/// The library takes any scheme, and fills what is missing with what the process's `PGHOST`, `PGUSER` and `PGDATABASE` say, or its
/// own account: then two replicas of one configuration would go to different places. So all three must be in the URL.
pub(super) fn parse(url: &str) -> Option<PgConnectOptions> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let (authority, path) = rest.split_once('/')?;
    let (who, host) = authority.rsplit_once('@')?;
    let user = who.split(':').next().unwrap_or_default();
    let database = path.split('?').next().unwrap_or_default();
    if user.is_empty() || host.is_empty() || host.starts_with(':') || database.is_empty() {
        return None;
    }
    PgConnectOptions::from_str(url).ok()
}

pub(super) fn check(services: &BTreeMap<String, Service>, control: &Control, notes: &mut Notes) {
    let mut databases = BTreeMap::new();
    url("control.database_url", &control.database_url, Some(&mut databases), notes);
    if !(1..=MOST).contains(&control.max_connections) {
        notes.wrong("control.max_connections", format!("must be between 1 and {MOST}"));
    }
    if services.is_empty() && !notes.errors.about("services") && !notes.errors.about("") {
        notes.wrong("services", "there is none; add a [services.NAME]");
    }
    for (name, service) in services {
        let field = format!("services.{name}");
        if let Some(problem) = envelope::service_name_problem(name) {
            notes.wrong(&field, problem);
        }
        if !(2..=MOST).contains(&service.max_connections) {
            notes.wrong(
                &format!("{field}.max_connections"),
                format!("must be between 2 and {MOST}: staging does not wait for the drain"),
            );
        }
        url(&format!("{field}.database_url"), &service.database_url, Some(&mut databases), notes);
        queues(&format!("{field}.consumer_queues"), &service.consumer_queues, notes);
        let listen = format!("{field}.listen_url");
        match &service.listen_url {
            Some(listen_url) => url(&listen, listen_url, None, notes),
            None if service.wake == Wake::Notify
                && !service.prepared_statements
                && !notes.errors.about(&listen)
                && !notes.errors.about(&format!("{listen}_file")) =>
            {
                notes.wrong(
                    &listen,
                    "must name the database itself: LISTEN does not work through a transaction-mode pooler",
                );
            }
            None => {}
        }
    }
}

/// A dead letter's token has at most 256 bytes, all printable; its routing key at most 255.
const LONGEST_QUEUE: usize = 200;

fn queues(field: &str, queues: &[String], notes: &mut Notes) {
    let fits = |queue: &&String| {
        !(1..=LONGEST_QUEUE).contains(&queue.len()) || !queue.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if let Some(queue) = queues.iter().find(fits) {
        let problem =
            format!("must be 1 to {LONGEST_QUEUE} printable ASCII characters each; {queue:?} is not");
        notes.wrong(field, problem);
    }
    let mut seen = BTreeSet::new();
    if let Some(queue) = queues.iter().find(|queue| !seen.insert(queue.as_str())) {
        notes.wrong(field, format!("has {queue:?} twice"));
    }
}

/// Checks a database's URL, and that nobody else has the same database.
fn url(field: &str, url: &Secret, databases: Option<&mut BTreeMap<String, String>>, notes: &mut Notes) {
    // A placeholder; what is wrong was said.
    if url.expose().is_empty() {
        return;
    }
    let Some(options) = parse(url.expose()) else {
        notes.wrong(field, NO_DATABASE_URL);
        return;
    };
    let place = format!("{}/{}", server(&options), options.get_database().unwrap_or_default());
    if let Some(other) = databases.and_then(|databases| databases.insert(place, field.to_owned())) {
        notes.wrong(field, format!("is the same database as {other}; each service has its own"));
    }
}

/// Where a URL leads: `host:port`, login and database.
pub fn place_of(url: &Secret) -> Option<(String, String, String)> {
    let options = parse(url.expose())?;
    let database = options.get_database()?.to_owned();
    Some((server(&options), options.get_username().to_owned(), database))
}

/// `host:port`.
pub(super) fn server(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}
