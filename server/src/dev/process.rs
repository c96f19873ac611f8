//! Process trees, as `/proc` shows them.

use std::{collections::BTreeSet, fs, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// A letter.
    state: char,
    parent: Pid,
    /// In clock ticks since the machine came up.
    started: u64,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = Pid::from_raw(fields.next()?.parse().ok()?);
        // Field 22; the next is the fifth.
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, started })
    }

    /// A zombie does not run: its memory, locks and ports are gone.
    fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Does it run?
pub(super) fn is_alive(pid: Pid) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.runs())
}

/// Its parent.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// A process that is none of our children: the kernel gives its number to somebody else as soon as it has ended, so it is
/// known by its start, too, and looked at again right before each signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stranger {
    pub(super) pid: Pid,
    started: u64,
}

impl Stranger {
    /// Who has this number now; `None` if nobody that runs.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let stat = Stat::of(pid).filter(Stat::runs)?;
        Some(Self { pid, started: stat.started })
    }

    /// Does it still run, and not another one with its number?
    pub(super) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// A signal to it alone; nothing if it has ended.
    pub(super) fn signal(self, signal: Signal) {
        if self.is_alive() {
            // It may end between the look and the call: then there is nothing left to do.
            let _ = kill(self.pid, signal);
        }
    }

    /// SIGKILL for it and everything below it; nothing if it has ended.
    pub(super) fn kill_tree(self) {
        if self.is_alive() {
            kill_tree(self.pid);
        }
    }
}

/// All processes there are.
pub(super) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw);
    entries.flatten().filter_map(pid).collect()
}

/// A variable of the environment that a process was started with; `None` if it has none, or is not ours to look at.
pub(super) fn variable(pid: Pid, name: &str) -> Option<Vec<u8>> {
    let all = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = [name.as_bytes(), b"="].concat();
    all.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(prefix.as_slice())).map(<[u8]>::to_vec)
}

/// The command line of a process, its arguments parted by spaces.
pub(super) fn command_line(pid: Pid) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&raw).replace('\0', " "))
}

/// `root` and everything below it.
fn tree(root: Pid) -> BTreeSet<Pid> {
    let parents: Vec<(Pid, Pid)> = all().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        for (pid, parent) in &parents {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// SIGKILL for `root` and everything below it; returns who was killed.
///
/// All are stopped first, until a look finds nobody new: else a process that sees its parent die could still
/// write, and a child born between the look and the kill would be missed.
pub(super) fn kill_tree(root: Pid) -> BTreeSet<Pid> {
    let mut stopped = BTreeSet::new();
    loop {
        let fresh: Vec<Pid> = tree(root).difference(&stopped).copied().collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            let _ = kill(pid, Signal::SIGSTOP);
            stopped.insert(pid);
        }
    }
    for pid in &stopped {
        let _ = kill(*pid, Signal::SIGKILL);
    }
    stopped
}

/// Waits until none of them runs; `false` if some still did after `limit`.
pub(super) async fn gone(pids: &BTreeSet<Pid>, limit: Duration) -> bool {
    none(limit, || pids.iter().any(|pid| is_alive(*pid))).await
}

/// The same for strangers.
pub(super) async fn strangers_gone(them: &BTreeSet<Stranger>, limit: Duration) -> bool {
    none(limit, || them.iter().any(|one| one.is_alive())).await
}

async fn none(limit: Duration, some_run: impl Fn() -> bool) -> bool {
    let until = tokio::time::Instant::now() + limit;
    while some_run() {
        if tokio::time::Instant::now() > until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "12 (a) b (c)) S 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 4711 26";
        let expected = Stat { state: 'S', parent: Pid::from_raw(7), started: 4711 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn who_has_the_number_of_a_process_that_ended_gets_no_signal_meant_for_that() -> std::io::Result<()> {
        let mut child = Command::new("sleep").arg("600").spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
        let now = Stranger::of(pid).ok_or(std::io::ErrorKind::NotFound)?;
        let before = Stranger { started: now.started - 1, ..now };

        before.signal(Signal::SIGKILL);
        before.kill_tree();
        assert!(!before.is_alive() && now.is_alive());
        // A stop is told at once, and a kill would have been.
        assert_eq!(child.try_wait()?, None);

        now.kill_tree();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait()?),
            Some(Signal::SIGKILL as i32)
        );
        assert!(!now.is_alive());
        Ok(())
    }
}
