//! Brings a database's `holdfast` schema to this release.
//!
//! `migrations/service` is the only source of the service line, applied to every service database and to the control
//! database; `migrations/control` goes to the control database on top. Each line has a ledger of its own inside schema
//! `holdfast`, so that a service's own `_sqlx_migrations` in `public` never meets ours. Design, section 11.

use std::io;
use std::time::Duration;

use sqlx::Connection;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnection;

fn line(mut migrator: Migrator, ledger: &'static str) -> Migrator {
    migrator.create_schema("holdfast");
    migrator.dangerous_set_table_name(ledger);
    migrator
}

fn service_line() -> Migrator {
    line(sqlx::migrate!("../migrations/service"), "holdfast.schema_migrations")
}

fn control_line() -> Migrator {
    line(sqlx::migrate!("../migrations/control"), "holdfast.control_migrations")
}

/// The newest version of the service line in this binary.
pub fn service_version() -> i64 {
    service_line().iter().map(|m| m.version).max().unwrap_or_default()
}

/// A migration of this binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: i64,
    /// Of its text.
    pub checksum: Vec<u8>,
}

/// The service line in this binary.
pub fn service_migrations() -> Vec<Migration> {
    migrations(&service_line())
}

/// The control line in this binary.
pub fn control_migrations() -> Vec<Migration> {
    migrations(&control_line())
}

fn migrations(line: &Migrator) -> Vec<Migration> {
    line.iter().map(|one| Migration { version: one.version, checksum: one.checksum.to_vec() }).collect()
}

/// How long a connection may take; a migration takes as long as it takes.
const CONNECT: Duration = Duration::from_secs(10);

async fn connect(database_url: &str) -> Result<PgConnection, sqlx::Error> {
    let late = |_| Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")));
    tokio::time::timeout(CONNECT, PgConnection::connect(database_url)).await.unwrap_or_else(late)
}

/// Migrates a service database. Safe to repeat and to run from several places at once: the line takes a lock.
///
/// # Errors
/// No connection, no privilege, or a ledger that does not match this binary's files.
pub async fn service(database_url: &str) -> Result<(), MigrateError> {
    let mut conn = connect(database_url).await?;
    service_line().run(&mut conn).await?;
    Ok(conn.close().await?)
}

/// Switches the announcement of new events on or off (`wake`); tells whether that changed anything.
///
/// # Errors
/// No connection, or no privilege, or the table is in use for long.
pub async fn announce(database_url: &str, wanted: bool) -> Result<bool, sqlx::Error> {
    let mut conn = connect(database_url).await?;
    let changed =
        sqlx::query_scalar("SELECT holdfast.outbox_notify($1)").bind(wanted).fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(changed)
}

/// Migrates the control database: the service line (it has an outbox of its own) and the control line.
///
/// # Errors
/// As [`service`].
pub async fn control(database_url: &str) -> Result<(), MigrateError> {
    service(database_url).await?;
    let mut conn = connect(database_url).await?;
    control_line().run(&mut conn).await?;
    Ok(conn.close().await?)
}
