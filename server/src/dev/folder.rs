//! The data folder of a session: one session at a time has it, and it remembers the ports.
//!
//! ```text
//! lock           held (flock) by the living session, with its process id in it; ends with the process, however it ends
//! ports          where everything listened the last time
//! postgres/ rabbitmq/   the servers' own
//! holdfast.toml  the configuration of the session's server
//! server.log     what it logs, from its start on; server.log.1 is the life before
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use super::error::{Error, io};
use super::orphans;

const ENTRIES: [&str; 7] =
    ["lock", "ports", "postgres", "rabbitmq", "holdfast.toml", "server.log", "server.log.1"];

/// Of these, the servers' folders: what runs is known by them.
const SERVERS: [&str; 2] = ["postgres", "rabbitmq"];

/// A data folder that is ours as long as this value lives.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Held, not read: the lock goes with the open file.
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if it is not there, and takes it.
    ///
    /// # Errors
    /// [`Error::InUse`], or it cannot be made or written to.
    pub fn take(path: &Path) -> Result<Self, Error> {
        io(fs::create_dir_all(path), || format!("make the folder {}", path.display()))?;
        // The one name of it: orphans are known by it.
        let path = io(fs::canonicalize(path), || format!("find {}", path.display()))?;
        let file = path.join("lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = io(opened, || format!("open {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                // The message is as good without.
                let _ = lock.read_to_string(&mut owner);
                return Err(Error::InUse { dir: path, owner: owner.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => {
                return Err(Error::Io { doing: format!("lock {}", file.display()), source });
            }
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        io(written, || format!("write {}", file.display()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Ends what an earlier session left running here; says how many processes there were.
    ///
    /// # Errors
    /// Something of it could not be ended.
    pub async fn stop_orphans(&self) -> Result<usize, Error> {
        orphans::stop(&self.path, &SERVERS).await
    }

    /// Its one absolute name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes everything of a session but the lock.
    ///
    /// # Errors
    /// Something else is in the folder ([`Error::NotOurs`]), or cannot be deleted.
    pub fn clear(&self) -> Result<(), Error> {
        let reading = || format!("read {}", self.path.display());
        let mut found = Vec::new();
        for entry in io(fs::read_dir(&self.path), reading)? {
            let entry = io(entry, reading)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !ENTRIES.contains(&name.as_str()) {
                return Err(Error::NotOurs { dir: self.path.clone(), found: name });
            }
            found.push(entry.path());
        }
        for path in found.iter().filter(|path| !path.ends_with("lock")) {
            let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            io(removed, || format!("delete {}", path.display()))?;
        }
        Ok(())
    }

    /// Where everything listened the last time, by name. A file that cannot be read is no wish.
    pub(super) fn ports(&self) -> toml::Table {
        let text = fs::read_to_string(self.path.join("ports")).unwrap_or_default();
        text.parse().unwrap_or_default()
    }

    pub(super) fn remember_ports(&self, ports: &[(&str, u16)]) -> Result<(), Error> {
        let lines: String = ports.iter().map(|(name, port)| format!("{name} = {port}\n")).collect();
        self.write("ports", &lines).map(|_| ())
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        io(fs::write(&path, text), || format!("write {}", path.display()))?;
        Ok(path)
    }

    /// A new log; the one of the life before is kept beside it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn log(&self) -> Result<(PathBuf, File), Error> {
        let path = self.path.join("server.log");
        if path.exists() {
            io(fs::rename(&path, self.path.join("server.log.1")), || format!("rename {}", path.display()))?;
        }
        let file = io(File::create(&path), || format!("open {}", path.display()))?;
        Ok((path, file))
    }
}
