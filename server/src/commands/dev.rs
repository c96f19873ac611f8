//! `holdfast dev`: a private PostgreSQL and RabbitMQ, a server on them, the main job played, and then yours to try.
//!
//! Guarantees: Ctrl-C ends it at any moment and leaves no process behind, and so does its own kill -9 (the private servers'
//! supervisors see to it; the next start to what they missed); the next start finds the data, and the endpoints where they
//! were as long as the ports are free. Prints for people on stdout; what the server logs goes to a file.

use std::cell::OnceCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};
use uuid::Uuid;

use super::{migrate, say};
use crate::config::Config;
use crate::dev::{DataFolder, Session, session};
use crate::{app, demo, dev, logging};

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the private servers keep their data: an empty folder, or that of an earlier session.
    #[arg(long, default_value_os_t = dev::session::default_data_folder())]
    data: PathBuf,
    /// Stop after the main job; exit 0 only if all of it held.
    #[arg(long)]
    once: bool,
    /// Delete the session's data first.
    #[arg(long)]
    fresh: bool,
    /// Show the server's log lines, too.
    #[arg(long)]
    verbose: bool,
    /// What grpcurl is called in the lines that are printed for you to paste.
    #[arg(long, default_value = "grpcurl")]
    grpcurl: String,
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
    demo::stage_and_wait(&grpc, &demo::Service { name: service, database_url }, &key).await?;
    Ok(ExitCode::SUCCESS)
}

/// SIGTERM and SIGINT, heard from now on.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn hear() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for one; gives the exit code that a shell would give to who died of it.
    async fn come(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => 143,
            _ = self.int.recv() => 130,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Before anything is started: from here on a signal is a request, and what was started is ended.
    let mut signals = Signals::hear()?;
    let up = tokio::select! {
        up = start(&arguments) => up?,
        code = signals.come() => return Ok(interrupted(code)),
    };
    let ended = use_it(&arguments, up, &mut signals).await;
    ended.map(|code| code.map_or(ExitCode::SUCCESS, interrupted))
}

fn interrupted(code: u8) -> ExitCode {
    // What Ctrl-C ended may be the reader, too (`| tee`); the exit code says it.
    let _ = say("interrupted; everything is stopped");
    ExitCode::from(code)
}

/// Everything that runs.
struct Up {
    session: Session,
    running: app::Running,
    places: demo::Places,
    log: PathBuf,
    config: PathBuf,
}

/// Dropped at any await it leaves nothing running.
async fn start(arguments: &Arguments) -> anyhow::Result<Up> {
    session::preflight()?;
    let folder = DataFolder::take(&arguments.data)?;
    let orphans = folder.stop_orphans().await?;
    if orphans > 0 {
        say(format_args!(
            "ended {orphans} processes that an earlier session had left in {}",
            folder.path().display()
        ))?;
    }
    if arguments.fresh {
        folder.clear()?;
    }
    let (log, file) = folder.log()?;
    logging::init_to(logging::Format::Text, false, writer(file, arguments.verbose))?;
    say(format_args!("starting a private PostgreSQL and RabbitMQ in {}", folder.path().display()))?;
    let session = Session::start(folder).await?;
    let text = session.config();
    let config_file = session.folder().write("holdfast.toml", &text)?;
    let mut config = Config::parse(&text)?;
    // On a loopback address, with data of its own: nobody needs a key to try it.
    config.auth.open = true;
    let exchange = config.broker.exchange.clone();
    migrate::all(&config).await.with_context(|| {
        format!(
            "the data in {} may be another version's; `--fresh` deletes them, `--data` takes another folder",
            arguments.data.display()
        )
    })?;
    let running = app::start(config).await?;
    let service =
        |name: &str| demo::Service { name: name.to_owned(), database_url: session.database_url(name) };
    let places = demo::Places {
        grpc: format!("http://{}", running.local_addr),
        transactional: service(session::SERVICES[0]),
        immediate: service(session::SERVICES[1]),
        amqp_url: session.amqp_url(),
        exchange,
    };
    say(format_args!("the server listens on {}", running.local_addr))?;
    Ok(Up { session, running, places, log, config: config_file })
}

fn writer(file: File, verbose: bool) -> BoxMakeWriter {
    let file = Mutex::new(file);
    if verbose { BoxMakeWriter::new(file.and(std::io::stderr)) } else { BoxMakeWriter::new(file) }
}

/// Plays, waits, and stops in order; the exit code of an interrupted show, if it was.
async fn use_it(arguments: &Arguments, up: Up, signals: &mut Signals) -> anyhow::Result<Option<u8>> {
    let Up { mut session, running, places, log, config } = up;
    let mut interrupted = None;
    // The first line that could not be said: a show without a spectator ends, in order.
    let unheard = OnceCell::new();
    let tell = |line: &str| {
        if let Err(error) = say(line) {
            // A later one fails for the same reason.
            let _ = unheard.set(error);
        }
    };
    let mut played = tokio::select! {
        played = demo::play(&places, &mut session.rabbitmq, tell) => {
            played.with_context(|| format!("the main job did not hold; the server's log is {}", log.display()))
        }
        code = signals.come() => {
            interrupted = Some(code);
            Ok(())
        }
        () = running.failed() => Err(panicked(&log)),
    };
    if played.is_ok() && interrupted.is_none() && !arguments.once {
        tell(&endpoints(&places, &running, &log, &config, &arguments.grpcurl));
        if unheard.get().is_none() {
            played = wait(signals.come(), running.failed(), &log).await;
        }
    }
    if let (Ok(()), Some(error)) = (&played, unheard.into_inner()) {
        played = Err(error).context("cannot print");
    }
    let stopped = async {
        running.stop().await;
        session.stop().await
    };
    tokio::select! {
        stopped = stopped => stopped?,
        // Once more: at once. What runs is killed as it is dropped.
        code = signals.come() => interrupted = Some(code),
    }
    played.map(|()| interrupted)
}

/// Until somebody wants it to end, or the server cannot go on, which is a failure as it is for `serve`.
async fn wait(
    wanted: impl Future<Output = u8>,
    failed: impl Future<Output = ()>,
    log: &Path,
) -> anyhow::Result<()> {
    tokio::select! {
        _ = wanted => {
            // Who pressed Ctrl-C may have ended the reader, too.
            let _ = say("stopping");
            Ok(())
        }
        () = failed => Err(panicked(log)),
    }
}

fn panicked(log: &Path) -> anyhow::Error {
    anyhow::anyhow!("a task of the server panicked; the server's log is {}", log.display())
}

/// What there is, and lines that work as they stand.
fn endpoints(
    places: &demo::Places,
    running: &app::Running,
    log: &Path,
    config: &Path,
    grpcurl: &str,
) -> String {
    let demo::Places { transactional, immediate, amqp_url, exchange, .. } = places;
    let (one, other, id) = (&transactional.name, &immediate.name, Uuid::now_v7());
    let (one_url, other_url) = (&transactional.database_url, &immediate.database_url);
    let (log, config) = (log.display(), config.display());
    let grpc = running.local_addr;
    let admin = running.admin_addr.map(|at| format!("http://{at}/metrics")).unwrap_or_default();
    let data = r#""type":"demo.hello","json":"{\"said\":\"world\"}""#;
    format!(
        r#"
running until Ctrl-C:
  gRPC        {grpc}
  metrics     {admin}
  {one:<10}  {one_url}
  {other:<10}  {other_url}
  RabbitMQ    {amqp_url}  (exchange {exchange})
  log         {log}
  config      {config}

to paste into another terminal: an event without a transaction, and where it is

{grpcurl} -plaintext -d '{{"service":"{other}","events":[{{"id":"{id}",{data}}}]}}' {grpc} holdfast.v1.OutboxService/StageNow
{grpcurl} -plaintext -d '{{"service":"{other}","id":"{id}"}}' {grpc} holdfast.v1.OutboxService/GetEvent

and one in a transaction of psql's, which decides by COMMIT or ROLLBACK

psql -X {one_url} <<'END'
BEGIN;
CREATE TABLE IF NOT EXISTS hello (said text);
INSERT INTO hello VALUES ('world');
SELECT holdfast.stage_ticket() AS ticket \gset
\setenv TICKET :ticket
\! {grpcurl} -plaintext -d '{{"service":"{one}","ticket":"'$TICKET'","events":[{{{data}}}]}}' {grpc} holdfast.v1.OutboxService/StageInTx
COMMIT;
END
"#
    )
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_server_that_cannot_go_on_is_a_failure_and_a_wanted_end_is_none() {
        let log = Path::new("/data/server.log");

        let failed = wait(pending(), ready(()), log).await;
        assert!(failed.is_err_and(|error| error.to_string().contains("panicked; the server's log is /data")));
        assert!(wait(ready(130), pending(), log).await.is_ok());
    }
}
