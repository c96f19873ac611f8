//! `with-services -- COMMAND…`: runs a command beside a private PostgreSQL and a private RabbitMQ.
//!
//! Both are started in parallel in a throw-away folder, the command finds them through `HOLDFAST_TEST_*`, its
//! exit code is ours. They are stopped and the folder is removed whatever happens: at the command's end, on
//! SIGINT and SIGTERM (handed on to the command), and when we are killed (the servers' supervisors see to it; the
//! folder goes at the next run).

use std::process::ExitCode;

use anyhow::{Context, ensure};
use holdfast_server::dev::{Postgres, RabbitMq, postgres, rabbitmq};
use holdfast_tests::{
    auth,
    folder::RunFolder,
    services::{AMQP_PORT, MANAGEMENT_PORT, POSTGRES_PORT, RUN_FOLDER},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1).skip_while(|word| word == "--");
    let program = words.next().context("usage: with-services -- COMMAND [ARGUMENT…]")?;

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let folder = RunFolder::new();
    // No fsync: what a test kills is a process, never the machine. Many tests, each with pools of its own.
    let database = postgres::Options::new(folder.path().join("postgres"))
        .setting("max_connections = 500")
        .setting("fsync = off");
    let broker = rabbitmq::Options::new(folder.path().join("rabbitmq"))
        .plugin("rabbitmq_management")
        .setting("collect_statistics_interval = 1000");
    let start = async { tokio::try_join!(Postgres::start(database), RabbitMq::start(broker)) };
    let (mut database, mut broker) = tokio::select! {
        started = start => started?,
        _ = interrupt.recv() => return Ok(ExitCode::from(130)),
        _ = terminate.recv() => return Ok(ExitCode::from(143)),
    };

    let keys = folder.path().join("keys");
    auth::make(&keys);
    let management = broker.management_port().context("the management plugin has no port")?;
    let mut child = Command::new(&program)
        .args(words)
        .env(POSTGRES_PORT, database.port().to_string())
        .env(AMQP_PORT, broker.port().to_string())
        .env(MANAGEMENT_PORT, management.to_string())
        .env(RUN_FOLDER, folder.path())
        .env(auth::KEYS, &keys)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw)
        .context("the command has ended")?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // A terminal sends SIGINT to the command too; a second one does no harm.
            _ = interrupt.recv() => { let _ = kill(pid, Signal::SIGINT); }
            _ = terminate.recv() => { let _ = kill(pid, Signal::SIGTERM); }
        }
    };

    let alive = (database.is_running(), broker.is_running());
    if alive != (true, true) {
        eprintln!("{}\n{}", database.log_tail(), broker.log_tail());
    }
    ensure!(alive.0, "the shared PostgreSQL ended during the run");
    ensure!(alive.1, "the shared RabbitMQ ended during the run");
    // Killed, not stopped in order: nobody will read the data, and the broker takes seconds over it.
    let (_, stopped) = tokio::join!(broker.kill9(), database.kill_immediate());
    stopped?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
