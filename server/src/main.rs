//! The `holdfast` binary: arguments in, exit code out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use holdfast_server::config::{Config, Wake};
use holdfast_server::{app, db, demo, dev, logging};
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
    /// Starts a private PostgreSQL and RabbitMQ and a server on them, plays the main job, and stays until Ctrl-C.
    Dev {
        /// Where the private servers keep their data.
        #[arg(long, default_value_os_t = dev::session::default_data_folder())]
        data: PathBuf,
        /// Stop after the main job; exit 0 only if all of it held.
        #[arg(long)]
        once: bool,
        /// Delete the data folder first.
        #[arg(long)]
        fresh: bool,
    },
    /// The caller that `dev` kills.
    #[command(hide = true)]
    DevCaller {
        #[arg(long)]
        grpc: String,
        #[arg(long)]
        database_url: String,
        #[arg(long)]
        service: String,
        #[arg(long)]
        key: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(run(arguments.command));
    // Not waited for: a name look-up that hangs blocks its thread for longer than a stop may take.
    runtime.shutdown_background();
    match ended {
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
        Command::Dev { data, once, fresh } => develop(&data, once, fresh).await,
        Command::DevCaller { grpc, database_url, service, key } => {
            let (amqp_url, exchange) = (String::new(), String::new());
            demo::stage_and_wait(&demo::Places { grpc, database_url, service, amqp_url, exchange }, &key)
                .await
        }
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
    let failed = tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        () = running.failed() => true,
    };
    running.stop().await;
    anyhow::ensure!(!failed, "a task of the server panicked");
    Ok(())
}

async fn migrate(config: &Config) -> anyhow::Result<()> {
    logging::init(config.log_format)?;
    migrate_all(config).await
}

async fn migrate_all(config: &Config) -> anyhow::Result<()> {
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

async fn develop(data: &Path, once: bool, fresh: bool) -> anyhow::Result<()> {
    logging::init(logging::Format::Text)?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    if fresh && data.exists() {
        std::fs::remove_dir_all(data).with_context(|| format!("cannot delete {}", data.display()))?;
    }
    println!("starting a private PostgreSQL and RabbitMQ in {}", data.display());
    let mut session = dev::Session::start(data).await?;
    let config = Config::parse(&session.config())?;
    let exchange = config.broker.exchange.clone();
    migrate_all(&config).await.with_context(|| {
        format!(
            "the data in {} may be another version's; `--fresh` deletes it, `--data` takes another",
            data.display()
        )
    })?;
    let running = app::start(config).await?;
    let service = dev::session::SERVICES[0];
    let places = demo::Places {
        grpc: format!("http://{}", running.local_addr),
        database_url: session.database_url(service),
        service: service.to_owned(),
        amqp_url: session.amqp_url(),
        exchange,
    };
    println!("the server listens on {}", running.local_addr);
    let played = tokio::select! {
        played = demo::play(&places, &mut session.rabbitmq, |line| println!("{line}")) => played,
        _ = term.recv() => Err(anyhow::anyhow!("interrupted")),
        _ = int.recv() => Err(anyhow::anyhow!("interrupted")),
        () = running.failed() => Err(anyhow::anyhow!("a task of the server panicked")),
    };
    if played.is_ok() && !once {
        print_endpoints(&places, running.local_addr);
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = running.failed() => {}
        }
    }
    running.stop().await;
    session.stop().await?;
    played.context("the main job did not hold")
}

fn print_endpoints(places: &demo::Places, grpc: std::net::SocketAddr) {
    println!();
    println!("running until Ctrl-C:");
    println!("  gRPC        {grpc}  (services: {})", dev::session::SERVICES.join(", "));
    println!("  PostgreSQL  {}", places.database_url);
    println!("  RabbitMQ    {}  (exchange {})", places.amqp_url, places.exchange);
    println!();
    println!("in psql, in a transaction of your own:  BEGIN; SELECT holdfast.stage_ticket();");
    println!("then, with the ticket it printed:");
    println!(
        "  grpcurl -plaintext -d '{{\"service\":\"{}\",\"ticket\":\"TICKET\",\"events\":[{{\"type\":\"demo.hello\",\"json\":\"{{}}\"}}]}}' {grpc} \\",
        places.service
    );
    println!("    holdfast.v1.OutboxService/StageInTx");
}
