//! `holdfast migrate`.

use std::process::ExitCode;

use anyhow::Context;

use crate::config::{Config, Wake};
use crate::{db, logging};

pub(super) async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    logging::init(config.log_format)?;
    all(config).await?;
    Ok(ExitCode::SUCCESS)
}

/// Migrates every database of the configuration.
pub(super) async fn all(config: &Config) -> anyhow::Result<()> {
    db::migrate::control(config.control.database_url.expose()).await.context("control.database_url")?;
    for (name, service) in &config.services {
        db::migrate::service(service.database_url.expose())
            .await
            .with_context(|| format!("services.{name}.database_url"))?;
        db::migrate::announce(service.database_url.expose(), service.wake == Wake::Notify)
            .await
            .with_context(|| format!("services.{name}.wake"))?;
        tracing::info!(service.name = %name, version = db::migrate::service_version(), "migrated");
    }
    Ok(())
}
