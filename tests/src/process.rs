//! Looking at processes from outside: who is there, who is gone.

use std::{fs, path::Path};

/// A process id and its command line.
pub type Process = (i32, String);

/// Does it run? Zombies do not.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// The letter of its state: `R`, `S`, `T` (stopped), `Z` (zombie), …
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|(state, _)| state)
}

/// The command lines of all running processes that mention a path.
pub fn mentioning(path: &Path) -> Vec<String> {
    let path = path.to_string_lossy();
    all().into_iter().map(|(_, line)| line).filter(|line| line.contains(&*path)).collect()
}

/// All running processes below one.
pub fn below(root: u32) -> Vec<Process> {
    let parent_of = |pid: i32| stat(pid).map(|(_, parent)| parent);
    let root = i32::try_from(root).expect("a process id");
    let is_below = |pid: i32| {
        std::iter::successors(parent_of(pid), |pid| parent_of(*pid)).any(|ancestor| ancestor == root)
    };
    all().into_iter().filter(|(pid, _)| is_below(*pid)).collect()
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("read /proc").flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            is_alive(pid).then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

/// State and parent; the program's name before them is in parentheses and may hold anything.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
