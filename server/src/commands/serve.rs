//! `holdfast serve`.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::{app, logging};

pub(super) async fn run(config: Config) -> anyhow::Result<ExitCode> {
    logging::init(config.log_format)?;
    // Before the listener opens: a signal that comes while we start must not kill us half-way.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let running = app::start(config).await?;
    let failed = tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        () = running.failed() => true,
    };
    running.stop().await;
    anyhow::ensure!(!failed, "a task of the server panicked");
    Ok(ExitCode::SUCCESS)
}
