//! Throw-away folders that the servers' own accounts can reach.
//!
//! The folders of one run lie in one run folder, and a lock says that the run lives: what a killed run left
//! behind, the next one removes.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

const PREFIX: &str = "holdfast-run-";
const LOCK: &str = "lock";

/// The folder of one run, removed on drop.
#[derive(Debug)]
pub struct RunFolder {
    dir: TempDir,
    /// Held as long as the run lives.
    _lock: File,
}

impl RunFolder {
    /// A new one; sweeps those of runs that were killed.
    pub fn new() -> Self {
        sweep();
        let dir = open_folder(PREFIX, &std::env::temp_dir());
        let lock = File::create(dir.path().join(LOCK)).expect("make the run folder's lock");
        lock.try_lock().expect("lock a folder that nobody else knows");
        Self { dir, _lock: lock }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Default for RunFolder {
    fn default() -> Self {
        Self::new()
    }
}

/// A folder for one test's private things, inside the run's folder if there is a run.
pub fn scratch() -> TempDir {
    let parent = std::env::var_os(crate::services::RUN_FOLDER).map_or_else(std::env::temp_dir, PathBuf::from);
    open_folder("holdfast-", &parent)
}

/// Temporary folders are closed to others by default; a server that drops to its own account must pass.
fn open_folder(prefix: &str, parent: &Path) -> TempDir {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .expect("make a temporary folder")
}

/// Removes the folders of runs whose lock nobody holds. Best effort: another user's folders stay.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        if let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
