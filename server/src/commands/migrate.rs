//! `holdfast migrate`.

use std::process::ExitCode;

use anyhow::bail;
use sqlx::migrate::MigrateError;

use crate::config::{Config, Wake};
use crate::{db, logging};

pub(super) async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    logging::init(config.log_format)?;
    all(config).await?;
    Ok(ExitCode::SUCCESS)
}

/// Migrates every database of the configuration. One that fails keeps no other from being migrated.
///
/// # Errors
/// Every database that failed, with the step and what to do.
pub(super) async fn all(config: &Config) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    if let Err(error) = db::migrate::control(config.control.database_url.expose()).await {
        failed.push(told("control.database_url", &error));
    }
    for (name, service) in &config.services {
        let url = service.database_url.expose();
        if let Err(error) = db::migrate::service(url).await {
            failed.push(told(&format!("services.{name}.database_url"), &error));
            continue;
        }
        if let Err(error) = db::migrate::announce(url, service.wake == Wake::Notify).await {
            failed.push(format!(
                "services.{name}.wake: switching the announcement of events: {error}; if the table is in use for long, try again"
            ));
            continue;
        }
        tracing::info!(service.name = %name, version = db::migrate::service_version(), "migrated");
    }
    if !failed.is_empty() {
        bail!("{} database(s) could not be migrated:\n  {}", failed.len(), failed.join("\n  "));
    }
    Ok(())
}

fn told(field: &str, error: &MigrateError) -> String {
    let (step, advice) = match error {
        MigrateError::ExecuteMigration(error, version) => (
            format!("migration {version}: {error}"),
            "it was rolled back and can be repeated once that is mended; a login that lacks rights must own schema holdfast",
        ),
        MigrateError::Execute(error) if error.as_database_error().is_some() => (
            format!("connecting, or reading the ledger: {error}"),
            "use a login that may create schema holdfast, or owns it",
        ),
        MigrateError::Execute(error) => {
            (format!("connecting: {error}"), "check host and port in the URL, and that the server runs")
        }
        MigrateError::VersionMissing(version) => (
            format!("migration {version} was applied and is not in this release"),
            "a newer release migrated this database: nothing to do for this one",
        ),
        MigrateError::VersionMismatch(version) => (
            format!("migration {version} was applied from another file than this release's"),
            "find out which build migrated this database",
        ),
        MigrateError::Dirty(version) => (
            format!("migration {version} began and did not end"),
            "mend it by hand, delete its row from holdfast.schema_migrations, migrate again",
        ),
        other => (other.to_string(), "see the error"),
    };
    format!("{field}: {step}; {advice}")
}
