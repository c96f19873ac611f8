//! One server process that cannot outlive us.
//!
//! Between us and the server stands a shell of a few lines in a process group of its own. It starts the server,
//! tells us its process id, and holds the read end of a pipe whose only write end is ours. Whatever ends us,
//! SIGKILL included, closes the pipe; the shell then ends the server, gently first, and after ten seconds
//! kills its whole group. The shell lives exactly as long as the server and hands on its exit status.
//!
//! (PR_SET_PDEATHSIG would be the other way; it needs unsafe code and is bound to the *thread* that forked.)

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    account::Account,
    error::{Error, io},
    orphans, process,
};

/// `$1` is the gentle signal, the rest the command. The server's output goes where the shell's stderr goes.
/// The watcher reads the pipe as fd 3, because a shell gives background jobs /dev/null as stdin. It naps in
/// short steps so that no `sleep` is left behind when it is killed.
pub(super) const SHELL: &str = r#"
signal=$1; shift
exec 3<&0
"$@" </dev/null >&2 3<&- &
server=$!
echo "$server"
(
  while read -r _ <&3; do :; done
  kill -s "$signal" "$server"
  i=0; while [ "$i" -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
  kill -s KILL 0
) >/dev/null 2>&1 &
watcher=$!
exec >/dev/null 3<&-
wait "$server"; status=$?
kill -s KILL "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
exit "$status"
"#;

/// What to run.
pub(super) struct Spec<'a> {
    /// Name for messages.
    pub(super) server: &'static str,
    /// Account to run under.
    pub(super) account: &'a Account,
    /// The program with its arguments and environment, made by [`Account::command`].
    pub(super) command: Command,
    /// Working folder.
    pub(super) dir: &'a Path,
    /// File that gets the server's stdout and stderr, started anew.
    pub(super) log: PathBuf,
    /// What ends the server when we are gone.
    pub(super) gentle: Signal,
}

/// A running (or ended) server.
#[derive(Debug)]
pub(super) struct Supervised {
    server: &'static str,
    shell: Child,
    /// The write end: closing it ends the server.
    pipe: Option<ChildStdin>,
    pid: Pid,
    log: PathBuf,
}

impl Supervised {
    /// Starts it; whether it becomes ready is for the caller to see.
    pub(super) fn spawn(spec: Spec<'_>) -> Result<Self, Error> {
        let _ = fs::remove_file(&spec.log);
        let log = io(File::create(&spec.log), || format!("open {}", spec.log.display()))?;
        spec.account.own(&spec.log)?;
        let mut command = spec.account.command(Path::new("/bin/sh"));
        command.args(["-c", SHELL, "sh", spec.gentle.as_str().trim_start_matches("SIG")]);
        command.arg(spec.command.get_program()).args(spec.command.get_args());
        for (name, value) in spec.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env(orphans::MARK, spec.dir);
        command.current_dir(spec.dir).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut shell = io(command.spawn(), || format!("start {}", spec.server))?;
        let pipe = shell.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            io(BufReader::new(stdout).read_line(&mut line), || format!("start {}", spec.server))?;
        }
        let Ok(pid) = line.trim().parse() else {
            return Err(Error::DidNotStart {
                server: spec.server,
                reason: "the supervising shell gave no process id".to_owned(),
                log: tail(&spec.log),
            });
        };
        Ok(Self { server: spec.server, shell, pipe, pid: Pid::from_raw(pid), log: spec.log })
    }

    /// The server's own process id.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its exit status, once it has ended.
    pub(super) fn exited(&mut self) -> Option<ExitStatus> {
        self.shell.try_wait().ok().flatten()
    }

    /// A signal to the server alone; nothing if it has ended.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            let _ = kill(self.pid, signal);
        }
    }

    /// Sends `signal` and waits for the end; who is not gone by then is killed, and that is an error.
    pub(super) async fn end(&mut self, signal: Signal, limit: Duration) -> Result<(), Error> {
        self.signal(signal);
        if self.ended_within(limit).await {
            return Ok(());
        }
        self.kill9().await;
        Err(Error::DidNotStop { server: self.server, seconds: limit.as_secs() })
    }

    /// SIGKILL for the server and all its children; returns when none of them runs any more.
    pub(super) async fn kill9(&mut self) {
        if self.exited().is_none() {
            let killed = process::kill_tree(self.pid);
            process::gone(&killed, Duration::from_secs(5)).await;
            self.ended_within(Duration::from_secs(5)).await;
        }
    }

    /// SIGKILL for the server and all its children, without waiting for them.
    pub(super) fn kill_now(&mut self) {
        if self.exited().is_none() {
            process::kill_tree(self.pid);
        }
    }

    /// Waits for the end; `false` if the limit came first.
    pub(super) async fn ended_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.exited().is_none() {
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }

    /// The error for a server that did not become ready.
    pub(super) fn did_not_start(&self, reason: String) -> Error {
        Error::DidNotStart { server: self.server, reason, log: tail(&self.log) }
    }
}

impl Drop for Supervised {
    /// Ends the server now, blocking until it is gone: the gentle signal through the shell, then SIGKILL.
    fn drop(&mut self) {
        drop(self.pipe.take());
        let until = Instant::now() + Duration::from_secs(10);
        while self.exited().is_none() {
            if Instant::now() > until {
                process::kill_tree(self.pid);
                let _ = self.shell.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The last lines of a log file, as far as it can be read; at most 4 KiB.
pub(super) fn tail(path: &Path) -> String {
    const MOST: u64 = 4096;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("({}: {error})", path.display()),
    }
}
