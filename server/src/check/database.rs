//! One database: is it there, is it the primary, is its schema ours, may the login do what `serve` does.

use std::time::Duration;

use sqlx::FromRow;

use super::connections::{Asked, Ceilings, Limit};
use super::report::Report;
use super::{MISSING_RIGHTS, SERVER};
use crate::config::{Config, Secret, Wake, place_of};
use crate::db::{self, Conn, Error, Kind, Pool, migrate};
use crate::outbox;
use crate::roster;
use crate::schema::ledger::{self, Standing};
use crate::schema::{self as shapes, Drift, Of};

/// How long a connection may take, and how long all questions of a database together.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// PostgreSQL majors that the tests run on.
const MAJORS: std::ops::RangeInclusive<i32> = 14..=18;

const MIGRATE: &str = "run `holdfast migrate` with the login that owns the schema";

const ANNOUNCE: &str = "run `holdfast migrate` with this configuration and the login that owns the schema";

/// A database to look at.
pub(super) struct Place<'a> {
    /// Whose it is: `control`, or `services.NAME`.
    pub(super) owner: String,
    /// What it is called: the owner, or its `listen_url`.
    subject: String,
    url: &'a Secret,
    /// What all replicas may open to it, listeners included, if they go to it themselves.
    connections: Option<u64>,
    /// Whether `serve`'s pool brings options of the session along and prepares by name; only listened at, it does neither.
    named: bool,
    what: What,
    /// Of the control database: what the roster is held against.
    configured: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Control,
    Service(Wake),
    /// Only listened at; the rest of it is asked at `database_url`.
    Listened,
}

impl<'a> Place<'a> {
    pub(super) fn all(config: &'a Config) -> Vec<Self> {
        let replicas = u64::from(config.replicas);
        let mut places = vec![Self {
            owner: "control".into(),
            subject: "control".into(),
            url: &config.control.database_url,
            connections: Some(replicas * u64::from(config.control.max_connections)),
            named: true,
            what: What::Control,
            configured: config.services.keys().cloned().collect(),
        }];
        for (name, service) in &config.services {
            let pool = if service.prepared_statements { u64::from(service.max_connections) } else { 0 };
            let listener = u64::from(service.listens_at().is_some() && service.listen_url.is_none());
            let own = replicas * (pool + listener);
            let owner = format!("services.{name}");
            places.push(Self {
                owner: owner.clone(),
                subject: owner.clone(),
                url: &service.database_url,
                connections: (own > 0).then_some(own),
                named: service.prepared_statements,
                what: What::Service(service.wake),
                configured: Vec::new(),
            });
            if let (Some(url), Some(_)) = (&service.listen_url, service.listens_at()) {
                places.push(Self {
                    subject: format!("{owner}.listen_url"),
                    owner,
                    url,
                    connections: Some(replicas),
                    named: false,
                    what: What::Listened,
                    configured: Vec::new(),
                });
            }
        }
        places
    }

    /// What it asks of its server, login and database, of which `ceilings` is known if it could be asked.
    pub(super) fn asked(&self, ceilings: Option<Ceilings>) -> Option<Asked> {
        let (server, login, database) = place_of(self.url)?;
        let of = self.subject.clone();
        Some(Asked { of, server, login, database, connections: self.connections?, ceilings })
    }
}

/// What a database that could be asked allows.
pub(super) struct Allowed {
    pub(super) limit: Limit,
    pub(super) ceilings: Ceilings,
}

#[derive(FromRow)]
struct Server {
    version: String,
    version_number: i32,
    standby: bool,
    read_only_by_default: bool,
    fsync: bool,
    full_page_writes: bool,
    encoding: String,
    max_connections: i64,
    reserved_connections: i64,
    database_limit: i64,
    login_limit: i64,
    login: String,
    superuser: bool,
    service_line: bool,
    control_line: bool,
    sequential_scans: bool,
}

/// What one database answers, and what its server allows if it got so far.
pub(super) async fn check(place: &Place<'_>) -> (Report, Option<Allowed>) {
    let mut report = Report::default();
    let options = db::Options {
        url: place.url.expose().to_owned(),
        max_connections: 1,
        // As `serve` connects: a pooler that nobody has told us of refuses it, or takes away what it brings along.
        prepared_statements: place.named,
        acquire_timeout: PATIENCE,
    };
    let connected = async {
        let pool = Pool::new(&options)?;
        let read = db::within(PATIENCE + Duration::from_secs(2), pool.read()).await?;
        Ok::<_, Error>((pool, read))
    };
    let (pool, mut read) = match connected.await {
        Ok(connected) => connected,
        Err(error) => {
            report.fail(&place.subject, "reachable", error.to_string(), advice(&error));
            return (report, None);
        }
    };
    let answered = db::within(PATIENCE, questions(place, read.conn(), &mut report)).await;
    match read.finish(answered).await {
        Ok((limit, migrated)) => {
            if migrated {
                shape(place, &pool, &mut report).await;
                if place.what == What::Control {
                    absent(place, &pool, &mut report).await;
                }
            }
            (report, limit)
        }
        Err(error) => {
            report.fail(&place.subject, "questions", error.to_string(), advice(&error));
            (report, None)
        }
    }
}

pub(super) fn advice(error: &Error) -> &'static str {
    match (error.kind, error.sqlstate.as_deref()) {
        (_, Some("28000" | "28P01")) => "check user and password in the URL, and pg_hba.conf",
        (_, Some("3D000")) => "create the database, or check its name in the URL",
        (_, Some("08P01")) => {
            "a pooler refuses what a connection of ours brings along: set prepared_statements = false for the service, and let listen_url name the database itself"
        }
        (_, Some("53300")) => "raise max_connections, or let fewer replicas or services use this server",
        (_, Some("57P03")) => "it is starting or recovering: wait",
        (Kind::TimedOut, _) => "check host, port and firewall; if something answers there, what it waits for",
        (Kind::Schema, _) => "grant what is missing: deploy/postgres/roles.sql",
        _ => "check host and port in the URL, and that the server runs and listens there",
    }
}

/// What the server allows, and whether there is a schema to be looked at.
async fn questions(
    place: &Place<'_>,
    conn: &mut Conn,
    report: &mut Report,
) -> Result<(Option<Allowed>, bool), Error> {
    let subject = place.subject.as_str();
    let server: Server = sqlx::query_as(SERVER).fetch_one(&mut *conn).await?;
    if !reachable(subject, &server, report) {
        return Ok((None, false));
    }
    let limit = Limit { connections: server.max_connections, reserved: server.reserved_connections };
    settings(place, &server, report);
    if place.what != What::Listened {
        if server.service_line {
            rights(subject, &server, conn, report).await?;
        }
        schema(place, &server, conn, report).await?;
    }
    let ceilings =
        Ceilings { login: server.login_limit, database: server.database_limit, superuser: server.superuser };
    // What is listened at is counted with its own URL; a pool behind a pooler is not ours to count.
    let allowed = place.connections.map(|_| Allowed { limit, ceilings });
    Ok((allowed, place.what != What::Listened && server.service_line))
}

/// Whether it is a server that can be asked more.
fn reachable(subject: &str, server: &Server, report: &mut Report) -> bool {
    let major = server.version_number / 10_000;
    let seen = format!("PostgreSQL {}", server.version);
    if server.standby {
        report.fail(
            subject,
            "reachable",
            format!("{seen}, a standby: it takes no writes"),
            "let the URL name the primary (a DNS name or virtual address that follows it)",
        );
        return false;
    }
    if major < *MAJORS.start() {
        report.fail(
            subject,
            "reachable",
            format!("{seen} is older than {}", MAJORS.start()),
            "upgrade PostgreSQL",
        );
        return false;
    }
    if major > *MAJORS.end() {
        report.warn(
            subject,
            "reachable",
            format!("{seen} is newer than {}, the newest that was tried", MAJORS.end()),
            "try it, or use a release of Holdfast that knows it",
        );
    } else {
        report.ok(subject, "reachable", format!("{seen}, primary"));
    }
    true
}

fn settings(place: &Place<'_>, server: &Server, report: &mut Report) {
    let subject = place.subject.as_str();
    let topic = "settings";
    let before = report.checks.len();
    for (name, on) in [("fsync", server.fsync), ("full_page_writes", server.full_page_writes)] {
        if !on {
            report.warn(
                subject,
                topic,
                format!("{name} is off: a crash of the machine can lose or corrupt what was committed"),
                format!("set {name} = on"),
            );
        }
    }
    if server.read_only_by_default {
        report.warn(
            subject,
            topic,
            "default_transaction_read_only is on: the server does not mind, a caller's stage_ticket() fails",
            "set it off for this database and its logins",
        );
    }
    if server.encoding != "UTF8" {
        report.warn(
            subject,
            topic,
            format!(
                "the database's encoding is {}: events with other characters are refused",
                server.encoding
            ),
            "use a database with the encoding UTF8",
        );
    }
    if report.checks.len() == before {
        report.ok(subject, topic, "as they should be");
    }
    if place.named && server.sequential_scans {
        report.fail(
            subject,
            "options",
            "the options of our connections do not arrive: a pooler before it drops them",
            "set prepared_statements = false for the service, or let the URL name the database itself",
        );
    }
}

async fn schema(
    place: &Place<'_>,
    server: &Server,
    conn: &mut Conn,
    report: &mut Report,
) -> Result<(), Error> {
    let most = ledger::most(ledger::RELEASE);
    let mut lines = vec![("schema", server.service_line, migrate::service_migrations())];
    if place.what == What::Control {
        lines.push(("control schema", server.control_line, migrate::control_migrations()));
    }
    for (topic, there, ours) in lines {
        if !there {
            report.fail(
                &place.subject,
                topic,
                "not there",
                format!("{MIGRATE}, then deploy/postgres/roles.sql"),
            );
            continue;
        }
        let applied = match topic {
            "schema" => shapes::sql::service_line(conn).await,
            _ => shapes::sql::control_line(conn).await,
        };
        let applied = match applied {
            Ok(applied) => applied,
            // That right is missing was said along with the others. The transaction has failed with it.
            Err(error) if error.sqlstate.as_deref() == Some("42501") => return Ok(()),
            Err(error) => return Err(error),
        };
        standing(&place.subject, topic, &ledger::compare(&applied, &ours, most), report);
    }
    match place.what {
        What::Service(wake) if server.service_line => announcing(&place.subject, wake, conn, report).await,
        _ => Ok(()),
    }
}

/// Whether the schema is what the migrations made.
async fn shape(place: &Place<'_>, pool: &Pool, report: &mut Report) {
    let (subject, topic) = (&place.subject, "drift");
    let of = if place.what == What::Control { Of::Control } else { Of::Service };
    let Drift { breaking, additive } = match shapes::look(pool, of, PATIENCE).await {
        Ok(drift) => drift,
        Err(error) => return report.fail(subject, topic, error.to_string(), advice(&error)),
    };
    if !breaking.is_empty() {
        let advice = "put it back by hand as `holdfast schema` has it (deploy/runbooks/drift.md; `holdfast migrate` only does what its ledger \
             has not); `serve` refuses this database's calls until then";
        report.fail(subject, topic, breaking.join("; "), advice);
    }
    if !additive.is_empty() {
        report.warn(
            subject,
            topic,
            additive.join("; "),
            "nothing, if it is the next release's; else take it away",
        );
    }
    if breaking.is_empty() && additive.is_empty() {
        report.ok(subject, topic, "the schema is what the migrations have made");
    }
}

/// Whether the configuration leaves out a service that may have something left.
async fn absent(place: &Place<'_>, pool: &Pool, report: &mut Report) {
    let (subject, topic) = (&place.subject, "roster");
    let known = match roster::absent(pool, &place.configured).await {
        Ok(known) => known,
        // Not migrated or no right: said already.
        Err(error) if error.kind == Kind::Schema => return,
        Err(error) => return report.fail(subject, topic, error.to_string(), advice(&error)),
    };
    let left: Vec<String> = known.iter().filter(|one| one.has_left()).map(ToString::to_string).collect();
    if left.is_empty() {
        report.ok(subject, topic, "no service is left out that has undelivered events");
    } else {
        report.fail(
            subject,
            topic,
            format!("left out of the configuration, with undelivered events: {}", left.join(", ")),
            "put it back until it is empty, or `holdfast forget-service NAME`; `serve` refuses without --force",
        );
    }
}

/// Whether the table announces new events, as the setting has it.
async fn announcing(subject: &str, wake: Wake, conn: &mut Conn, report: &mut Report) -> Result<(), Error> {
    let topic = "wake";
    let announces = match outbox::announced::announces(conn).await {
        Ok(announces) => announces,
        // No schema or no right: said already.
        Err(error) if error.kind == Kind::Schema => return Ok(()),
        Err(error) => return Err(error),
    };
    match (wake, announces) {
        (Wake::Notify, false) => {
            report.fail(subject, topic, "wake = \"notify\", but the outbox announces nothing", ANNOUNCE);
        }
        (Wake::Poll, true) => report.warn(
            subject,
            topic,
            "wake = \"poll\", but the outbox announces: transactions that insert events commit one after the other, for nobody",
            ANNOUNCE,
        ),
        (wake, _) => report.ok(subject, topic, format!("\"{}\", as the outbox does", wake.as_str())),
    }
    Ok(())
}

fn standing(subject: &str, topic: &'static str, standing: &Standing, report: &mut Report) {
    match standing {
        Standing::Level(version) => report.ok(subject, topic, format!("version {version}, this release's")),
        Standing::Next(version) => report.ok(
            subject,
            topic,
            format!("version {version}, a later one than this release's, on which it runs"),
        ),
        Standing::Ahead { schema, most } => report.fail(
            subject,
            topic,
            format!("version {schema}; this release runs on at most {most}"),
            "use a newer release of Holdfast",
        ),
        Standing::Behind { missing } => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            report.fail(
                subject,
                topic,
                format!("migrations not applied yet: {}", missing.join(", ")),
                MIGRATE,
            );
        }
        Standing::Differs(version) => report.fail(
            subject,
            topic,
            format!("migration {version} was applied from another file than this release's"),
            "find out which build migrated this database; a released migration is never edited",
        ),
        Standing::Unfinished(version) => report.fail(
            subject,
            topic,
            format!("migration {version} began and did not end"),
            "read the migrator's error, mend it by hand, delete the row from the ledger, migrate again",
        ),
    }
}

async fn rights(subject: &str, server: &Server, conn: &mut Conn, report: &mut Report) -> Result<(), Error> {
    let missing: Vec<String> = sqlx::query_scalar(MISSING_RIGHTS).fetch_all(&mut *conn).await?;
    let login = &server.login;
    if !missing.is_empty() {
        report.fail(
            subject,
            "rights",
            format!("the login {login:?} lacks {}", missing.join("; ")),
            "run deploy/postgres/roles.sql in this database (after every `holdfast migrate`)",
        );
    } else if server.superuser {
        report.warn(
            subject,
            "rights",
            format!("the login {login:?} is a superuser: no grant limits it"),
            "serve with a login that has the rights of deploy/postgres/roles.sql and no more",
        );
    } else {
        report.ok(subject, "rights", format!("the login {login:?} may do what the server does"));
    }
    Ok(())
}
