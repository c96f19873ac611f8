//! The real binary, in a process that can be killed, stopped and continued.
//!
//! Its log lines are part of the test's log (see [`crate::logs`]); anything else that it prints on stderr counts as
//! an ERROR. It never outlives the test, not even one that is killed.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
};
use tracing::Level;

use super::ServerConfig;
use crate::{
    folder,
    logs::{Line, Logs, parse_json},
    reaper::Reaper,
    wait,
};

/// The `holdfast` that was built beside the running test: `target/PROFILE/deps/e2e-…` → `target/PROFILE/holdfast`.
///
/// # Panics
/// When it is not there.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let found = test.ancestors().skip(1).take(2).map(|dir| dir.join("holdfast")).find(|path| path.is_file());
    found.expect("the holdfast binary; build it first: cargo build -p holdfast-server")
}

/// Gets each line that a server prints, with the level that it has if it says none.
pub type Sink = Arc<dyn Fn(&str, Level) + Send + Sync>;

/// A running (or ended) `holdfast serve`.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pid: Pid,
    address: Option<SocketAddr>,
    lines: Arc<Mutex<Vec<String>>>,
    _reaper: Reaper,
    _folder: TempDir,
}

impl ServerProcess {
    /// Starts `holdfast serve` and waits until it listens.
    ///
    /// # Panics
    /// When it ends, or does not listen in time; its lines are shown.
    pub async fn start(config: &ServerConfig) -> Self {
        Self::started(Self::spawn(config)).await
    }

    /// The same with everything that this filter lets through in its log.
    ///
    /// # Panics
    /// As [`ServerProcess::start`].
    pub async fn start_logging(config: &ServerConfig, filter: &str) -> Self {
        Self::started(Self::spawn_with(config, Self::into_the_log(), Some(filter))).await
    }

    /// The same, outside of a test: its lines go to `sink` and nowhere else.
    ///
    /// # Panics
    /// As [`ServerProcess::start`].
    pub async fn start_with(config: &ServerConfig, sink: Sink) -> Self {
        Self::started(Self::spawn_with(config, sink, None)).await
    }

    async fn started(mut server: Self) -> Self {
        let address = wait::until("the server to listen", wait::LONG, || {
            let ended = server.child.try_wait().ok().flatten();
            let seen = server.listening().ok_or_else(|| server.lines());
            async move {
                match (seen, ended) {
                    (Err(lines), Some(status)) => panic!("the server ended ({status}): {lines:#?}"),
                    (seen, _) => seen,
                }
            }
        })
        .await;
        server.address = Some(address);
        server
    }

    /// Starts `holdfast serve` and returns at once: for configurations that it should refuse.
    pub fn spawn(config: &ServerConfig) -> Self {
        Self::spawn_with(config, Self::into_the_log(), None)
    }

    fn into_the_log() -> Sink {
        let logs = Logs::capture();
        let sink = move |text: &str, otherwise: Level| {
            eprintln!("[server] {text}");
            logs.add(parse_json(text).unwrap_or_else(|| Line {
                level: otherwise,
                target: "holdfast".to_owned(),
                text: text.to_owned(),
            }));
        };
        Arc::new(sink)
    }

    fn spawn_with(config: &ServerConfig, sink: Sink, filter: Option<&str>) -> Self {
        let folder = folder::scratch();
        let path = folder.path().join("holdfast.toml");
        std::fs::write(&path, config.to_toml()).expect("write the server's configuration");
        let mut command = Command::new(binary());
        command.args(["serve", "--config"]).arg(path);
        for (name, _) in std::env::vars_os() {
            // What this run exports for its tests is not the server's configuration.
            if name.to_string_lossy().starts_with("HOLDFAST_") {
                command.env_remove(name);
            }
        }
        if let Some(filter) = filter {
            command.env("HOLDFAST_LOG", filter);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("start the holdfast binary");
        let id = child.id().expect("a process id");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stdout, stderr) = (child.stdout.take().expect("stdout"), child.stderr.take().expect("stderr"));
        tokio::spawn(follow(stdout, lines.clone(), Level::INFO, sink.clone()));
        tokio::spawn(follow(stderr, lines.clone(), Level::ERROR, sink));
        Self {
            child,
            pid: Pid::from_raw(i32::try_from(id).expect("a process id")),
            address: None,
            lines,
            _reaper: Reaper::of(id),
            _folder: folder,
        }
    }

    /// Where it listens.
    ///
    /// # Panics
    /// When it was spawned and not awaited.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a server that was started with `start`")
    }

    /// Where its admin port is.
    ///
    /// # Panics
    /// When it is off, or the server does not listen yet.
    pub fn admin_address(&self) -> SocketAddr {
        self.said("admin.addr").expect("a server with an admin port")
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Everything that it printed so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// SIGKILL, and waits for the end.
    pub async fn kill9(&mut self) {
        let _ = self.child.kill().await;
    }

    /// SIGTERM.
    pub fn sigterm(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGSTOP: it stands still, its connections stay open. Returns when it stands.
    pub async fn sigstop(&self) {
        self.signal(Signal::SIGSTOP);
        wait::until_equal("the server's state", wait::LONG, Some('T'), || async {
            crate::process::state(self.pid.as_raw())
        })
        .await;
    }

    /// SIGCONT.
    pub fn sigcont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within the limit.
    pub async fn exit_status(&mut self, within: Duration) -> ExitStatus {
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("the server did not end within {within:?}: {:#?}", self.lines()))
            .expect("wait")
    }

    fn signal(&self, signal: Signal) {
        // The child is ours and not waited for, so the number is still its own.
        if self.child.id().is_some() {
            kill(self.pid, signal).expect("signal the server");
        }
    }

    fn listening(&self) -> Option<SocketAddr> {
        self.said("listen.addr")
    }

    fn said(&self, address: &str) -> Option<SocketAddr> {
        self.lines().iter().find_map(|line| {
            let all: Value = serde_json::from_str(line).ok()?;
            let fields = all.get("fields").unwrap_or(&all);
            (fields["message"] == "listening").then(|| fields[address].as_str()?.parse().ok())?
        })
    }
}

async fn follow(from: impl AsyncRead + Unpin, lines: Arc<Mutex<Vec<String>>>, otherwise: Level, sink: Sink) {
    let mut from = BufReader::new(from).lines();
    while let Ok(Some(text)) = from.next_line().await {
        sink(&text, otherwise);
        lines.lock().unwrap().push(text);
    }
}
