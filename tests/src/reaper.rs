//! What a test started ends with it, even if the test process is killed.

use std::{os::unix::process::CommandExt as _, process::Stdio};

/// Kills a process when this test process is gone, whatever ended it: a shell in a group of its own that waits for
/// the end of a pipe from us. (`kill_on_drop` does nothing for a test that is killed itself.)
#[derive(Debug)]
pub(crate) struct Reaper(std::process::Child);

impl Reaper {
    /// Watches over this process.
    pub(crate) fn of(pid: u32) -> Self {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "while read -r _; do :; done; kill -s KILL \"$1\"", "sh", &pid.to_string()]);
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(shell.spawn().expect("start the reaper"))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Before its pipe closes: by now the child is dead, and its number may be somebody else's.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
