//! One database: is it there, is it the primary, is its schema ours, may the login do what `serve` does.

use std::time::Duration;

use sqlx::FromRow;

use super::connections::{Asked, Ceilings, Limit};
use super::ledger::{self, Applied, Standing};
use super::report::Report;
use super::{CONTROL_LINE, MISSING_RIGHTS, SERVER, SERVICE_LINE};
use crate::config::{Config, Secret, Wake, place_of};
use crate::db::{self, Conn, Error, Kind, Pool, migrate};
use crate::outbox;

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
            });
            if let (Some(url), Some(_)) = (&service.listen_url, service.listens_at()) {
                places.push(Self {
                    subject: format!("{owner}.listen_url"),
                    owner,
                    url,
                    connections: Some(replicas),
                    named: false,
                    what: What::Listened,
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
        db::within(PATIENCE + Duration::from_secs(2), pool.read()).await
    };
    let mut read = match connected.await {
        Ok(read) => read,
        Err(error) => {
            report.fail(&place.subject, "reachable", error.to_string(), advice(&error));
            return (report, None);
        }
    };
    let answered = db::within(PATIENCE, questions(place, read.conn(), &mut report)).await;
    match read.finish(answered).await {
        Ok(limit) => (report, limit),
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

async fn questions(
    place: &Place<'_>,
    conn: &mut Conn,
    report: &mut Report,
) -> Result<Option<Allowed>, Error> {
    let subject = place.subject.as_str();
    let server: Server = sqlx::query_as(SERVER).fetch_one(&mut *conn).await?;
    if !reachable(subject, &server, report) {
        return Ok(None);
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
    Ok(place.connections.map(|_| Allowed { limit, ceilings }))
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
    let control = place.what == What::Control;
    let mut lines = vec![("schema", server.service_line, SERVICE_LINE, migrate::service_migrations())];
    if control {
        lines.push(("control schema", server.control_line, CONTROL_LINE, migrate::control_migrations()));
    }
    for (topic, there, statement, ours) in lines {
        if !there {
            report.fail(
                &place.subject,
                topic,
                "not there",
                format!("{MIGRATE}, then deploy/postgres/roles.sql"),
            );
            continue;
        }
        let applied: Result<Vec<(i64, bool, Vec<u8>)>, _> =
            sqlx::query_as(statement).fetch_all(&mut *conn).await;
        let applied = match applied.map_err(Error::from) {
            Ok(applied) => applied,
            // That right is missing was said along with the others. The transaction has failed with it.
            Err(error) if error.sqlstate.as_deref() == Some("42501") => return Ok(()),
            Err(error) => return Err(error),
        };
        let applied: Vec<Applied> = applied
            .into_iter()
            .map(|(version, success, checksum)| Applied { version, success, checksum })
            .collect();
        standing(&place.subject, topic, &ledger::compare(&applied, &ours), report);
    }
    match place.what {
        What::Service(wake) if server.service_line => announcing(&place.subject, wake, conn, report).await,
        _ => Ok(()),
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
        Standing::OneAhead(version) => {
            report.ok(
                subject,
                topic,
                format!("version {version}, the next release's, on which this one runs"),
            );
        }
        Standing::Ahead { schema, ours } => report.fail(
            subject,
            topic,
            format!("version {schema}; this release knows {ours} and runs on one migration more"),
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
