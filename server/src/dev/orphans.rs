//! Servers of an earlier life: whose owner was killed, and who run on in a folder that is about to be used again.
//!
//! Ours are known by what they were started with, a variable that names their folder; never by their name. Whoever asks must
//! have the folder to himself (its lock), else these were somebody's living servers. Their supervisors are ending them already,
//! if those live; who has none is told to end; who does not is killed. PostgreSQL and RabbitMQ recover from that.

use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    error::Error,
    process::{self, Stranger},
    supervised::SHELL,
};

/// The variable: the folder of the server.
pub(super) const MARK: &str = "HOLDFAST_PRIVATE_SERVER";

/// Longer than a supervisor gives its server before it kills it.
const PATIENCE: Duration = Duration::from_secs(12);

/// Ends every server that was started in one of a session's folders of these names, and in none below them: another session may
/// live there. Says how many processes there were.
pub(super) async fn stop(session: &Path, names: &[&str]) -> Result<usize, Error> {
    let folders: Vec<PathBuf> = names.iter().map(|name| session.join(name)).collect();
    let found = of(&folders);
    let pids: BTreeSet<Pid> = found.iter().map(|one| one.pid).collect();
    for one in &found {
        let is_root = process::parent(one.pid).is_none_or(|parent| !pids.contains(&parent));
        if is_root && !is_supervisor(one.pid) {
            // PostgreSQL waits for its clients then, and is killed below if they stay.
            one.signal(Signal::SIGTERM);
        }
    }
    if !process::strangers_gone(&found, PATIENCE).await {
        for one in of(&folders) {
            one.kill_tree();
        }
    }
    process::strangers_gone(&of(&folders), Duration::from_secs(5)).await;
    // A look decides, not the wait: somebody may have been born meanwhile.
    match of(&folders).first() {
        Some(one) => Err(Error::AlreadyRunning { dir: session.to_path_buf(), pid: one.pid.as_raw() }),
        None => Ok(found.len()),
    }
}

fn of(folders: &[PathBuf]) -> BTreeSet<Stranger> {
    // First who it is, then whose: the other way round the mark could be an ended process's, and the number another's.
    let strangers = process::all().into_iter().filter_map(Stranger::of);
    strangers
        .filter(|one| {
            let mark = process::variable(one.pid, MARK);
            mark.is_some_and(|mark| folders.iter().any(|folder| folder.as_os_str().as_bytes() == mark))
        })
        .collect()
}

fn is_supervisor(pid: Pid) -> bool {
    process::command_line(pid).is_some_and(|line| line.contains(SHELL))
}
