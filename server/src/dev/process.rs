//! Process trees, as `/proc` shows them.

use std::{collections::BTreeSet, fs, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The fields of `/proc/PID/stat` that matter here: the state's letter and the parent.
fn stat(pid: Pid) -> Option<(char, Pid)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
fn parse_stat(line: &str) -> Option<(char, Pid)> {
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some((state, Pid::from_raw(parent)))
}

/// Does it run? A zombie does not: its memory, locks and ports are gone.
pub(super) fn is_alive(pid: Pid) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Its parent.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    stat(pid).map(|(_, parent)| parent)
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
    let until = tokio::time::Instant::now() + limit;
    while pids.iter().any(|pid| is_alive(*pid)) {
        if tokio::time::Instant::now() > until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        assert_eq!(parse_stat("12 (a) b (c)) S 7 12 12 0"), Some(('S', Pid::from_raw(7))));
        assert_eq!(parse_stat(""), None);
    }
}
