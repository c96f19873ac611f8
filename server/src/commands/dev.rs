//! `holdfast dev`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::migrate;
use crate::config::Config;
use crate::{app, demo, dev, logging};

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the private servers keep their data.
    #[arg(long, default_value_os_t = dev::session::default_data_folder())]
    data: PathBuf,
    /// Stop after the main job; exit 0 only if all of it held.
    #[arg(long)]
    once: bool,
    /// Delete the data folder first.
    #[arg(long)]
    fresh: bool,
}

/// Arguments of the caller that `dev` kills.
#[derive(Debug, Args)]
pub struct CallerArguments {
    #[arg(long)]
    grpc: String,
    #[arg(long)]
    database_url: String,
    #[arg(long)]
    service: String,
    #[arg(long)]
    key: String,
}

pub(super) async fn call(arguments: CallerArguments) -> anyhow::Result<ExitCode> {
    let CallerArguments { grpc, database_url, service, key } = arguments;
    let (amqp_url, exchange) = (String::new(), String::new());
    demo::stage_and_wait(&demo::Places { grpc, database_url, service, amqp_url, exchange }, &key).await?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { data, once, fresh } = arguments;
    let data = data.as_path();
    logging::init(logging::Format::Text)?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    if fresh && data.exists() {
        std::fs::remove_dir_all(data).with_context(|| format!("cannot delete {}", data.display()))?;
    }
    println!("starting a private PostgreSQL and RabbitMQ in {}", data.display());
    let mut session = dev::Session::start(data).await?;
    let mut config = Config::parse(&session.config())?;
    // On a loopback address, with data of its own: nobody needs a key to try it.
    config.auth.open = true;
    let exchange = config.broker.exchange.clone();
    migrate::all(&config).await.with_context(|| {
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
    played.context("the main job did not hold")?;
    Ok(ExitCode::SUCCESS)
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
