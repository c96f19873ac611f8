//! The `holdfast` binary: arguments in, exit code out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use holdfast_server::config::Config;
use holdfast_server::{app, db, logging};
use tokio::signal::unix::{SignalKind, signal};

/// Event durability: what committed is delivered, what rolled back is not.
#[derive(Parser)]
#[command(name = "holdfast", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves until SIGTERM or SIGINT. Does not migrate.
    Serve {
        /// The TOML configuration file.
        #[arg(long, env = "HOLDFAST_CONFIG")]
        config: PathBuf,
    },
    /// Brings the control database and every service database to this release's schema. Safe to repeat.
    Migrate {
        /// The TOML configuration file; its accounts must own schema `holdfast` or be allowed to create it.
        #[arg(long, env = "HOLDFAST_CONFIG")]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(run(arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("holdfast: {error:#}");
    ExitCode::FAILURE
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { config } => serve(read(&config)?).await,
        Command::Migrate { config } => migrate(&read(&config)?).await,
    }
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Config::parse(&text).with_context(|| path.display().to_string())
}

async fn serve(config: Config) -> anyhow::Result<()> {
    logging::init(config.log_format)?;
    // Before the listener opens: a signal that comes while we start must not kill us half-way.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let running = app::start(config).await?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    running.stop().await;
    Ok(())
}

async fn migrate(config: &Config) -> anyhow::Result<()> {
    logging::init(config.log_format)?;
    db::migrate::control(config.control.expose()).await.context("control.database_url")?;
    for (name, service) in &config.services {
        db::migrate::service(service.database_url.expose())
            .await
            .with_context(|| format!("services.{name}.database_url"))?;
        tracing::info!(service.name = %name, version = db::migrate::service_version(), "migrated");
    }
    Ok(())
}
