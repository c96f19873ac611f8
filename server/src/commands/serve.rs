//! `holdfast serve`.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::config::Effective;
use crate::{app, logging};

pub(super) async fn run(effective: Effective) -> anyhow::Result<ExitCode> {
    logging::init(effective.config.log_format)?;
    // What somebody said; the rest are the defaults. All of it, with its origins: `holdfast config show`.
    info!(settings = effective.said(), "configuration");
    // Before the listener opens: a signal that comes while we start must not kill us half-way.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let running = app::start(effective.config).await?;
    let failed = tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        () = running.failed() => true,
    };
    running.stop().await;
    anyhow::ensure!(!failed, "a task of the server panicked");
    Ok(ExitCode::SUCCESS)
}
