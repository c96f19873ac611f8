//! `holdfast serve`.

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::ConfigFile;
use crate::{app, logging};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    file: ConfigFile,
    /// Start although the configuration leaves out a service that may have undelivered events; they stay where they are.
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let effective = arguments.file.read_for_serving()?;
    logging::init(effective.config.log_format)?;
    // What somebody said; the rest are the defaults. All of it, with its origins: `holdfast config show`.
    info!(settings = effective.said(), "configuration");
    // Before the listener opens: a signal that comes while we start must not kill us half-way.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let starting = if arguments.force { app::Absent::Warn } else { app::Absent::Refuse };
    let running = app::start_with(effective.config, starting).await?;
    let failed = tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        () = running.failed() => true,
    };
    running.stop().await;
    anyhow::ensure!(!failed, "a task of the server panicked");
    Ok(ExitCode::SUCCESS)
}
