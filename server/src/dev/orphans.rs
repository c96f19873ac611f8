//! Servers of an earlier life: whose owner was killed, and who run on in a folder that is about to be used again.
//!
//! Ours are known by what they were started with, a variable that names their folder; never by their name. Whoever asks must
//! have the folder to himself (its lock), else these were somebody's living servers. Their supervisors are ending them already,
//! if those live; who has none is told to end; who does not is killed. PostgreSQL and RabbitMQ recover from that.

use std::{collections::BTreeSet, os::unix::ffi::OsStrExt, path::Path, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{error::Error, process, supervised::SHELL};

/// The variable: the folder of the server.
pub(super) const MARK: &str = "HOLDFAST_PRIVATE_SERVER";

/// Longer than a supervisor gives its server before it kills it.
const PATIENCE: Duration = Duration::from_secs(12);

/// Ends every server that was started in `folder` or below it; says how many processes there were.
pub(super) async fn stop(folder: &Path) -> Result<usize, Error> {
    let found = of(folder);
    if found.is_empty() {
        return Ok(0);
    }
    for pid in &found {
        let is_root = process::parent(*pid).is_none_or(|parent| !found.contains(&parent));
        if is_root && !is_supervisor(*pid) {
            // PostgreSQL waits for its clients then, and is killed below if they stay.
            let _ = kill(*pid, Signal::SIGTERM);
        }
    }
    let number = found.len();
    if !process::gone(&found, PATIENCE).await {
        for pid in of(folder) {
            process::kill_tree(pid);
        }
    }
    let left = of(folder);
    if process::gone(&left, Duration::from_secs(5)).await {
        return Ok(number);
    }
    match of(folder).first() {
        Some(pid) => Err(Error::AlreadyRunning { dir: folder.to_path_buf(), pid: pid.as_raw() }),
        None => Ok(number),
    }
}

fn of(folder: &Path) -> BTreeSet<Pid> {
    let folder = folder.as_os_str().as_bytes();
    let below =
        |path: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    process::all()
        .into_iter()
        .filter(|pid| {
            process::is_alive(*pid) && process::variable(*pid, MARK).is_some_and(|path| below(&path))
        })
        .collect()
}

fn is_supervisor(pid: Pid) -> bool {
    process::command_line(pid).is_some_and(|line| line.contains(SHELL))
}
