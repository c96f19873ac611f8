//! The data folder of a session: one session at a time has it, and it remembers the ports.
//!
//! A folder is a session's if the file [`MARKER`] is in it, and becomes one only when it is empty: whatever else somebody names
//! with `--data` is not written to, not given to another account and not deleted.
//!
//! ```text
//! holdfast-dev   the marker, made first
//! lock           held (flock) by the living session, with its process id in it; ends with the process, however it ends
//! ports          where everything listened the last time
//! postgres/ rabbitmq/   the servers' own
//! holdfast.toml  the configuration of the session's server
//! server.log     what it logs, from its start on; server.log.1 is the life before
//! ```

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

use super::error::{Error, io};
use super::orphans;

/// Says that a folder is a session's.
const MARKER: &str = "holdfast-dev";
const MARKER_TEXT: &str = "\
    This folder belongs to `holdfast dev`, which starts servers in it and deletes their data with --fresh.\n";

const ENTRIES: [&str; 8] =
    [MARKER, "lock", "ports", "postgres", "rabbitmq", "holdfast.toml", "server.log", "server.log.1"];

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
    /// [`Error::NotASession`], [`Error::AnothersSession`], [`Error::InUse`], or it cannot be made or written to.
    pub fn take(path: &Path) -> Result<Self, Error> {
        io(fs::create_dir_all(path), || format!("make the folder {}", path.display()))?;
        // The one name of it: orphans are known by it.
        let path = io(fs::canonicalize(path), || format!("find {}", path.display()))?;
        claim(&path)?;
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

    /// Deletes everything of a session but the marker and the lock.
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
        for path in found.iter().filter(|path| !path.ends_with("lock") && !path.ends_with(MARKER)) {
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

/// Makes an empty folder a session's; fails, with nothing changed, if it is neither that nor one already.
fn claim(folder: &Path) -> Result<(), Error> {
    let marker = folder.join(MARKER);
    let reading = || format!("read {}", folder.display());
    let entries = io(fs::read_dir(folder), reading)?.collect::<Result<Vec<_>, _>>();
    let names: Vec<OsString> = io(entries, reading)?.iter().map(fs::DirEntry::file_name).collect();
    // Looked for after the listing, which is no snapshot: who sees another's lock sees the marker that was made before it.
    if fs::symlink_metadata(&marker).is_ok() {
        return of_this_user(&marker);
    }
    if let Some(found) = names.first() {
        let found = found.to_string_lossy().into_owned();
        return Err(Error::NotASession { dir: folder.to_path_buf(), found });
    }
    match OpenOptions::new().write(true).create_new(true).open(&marker) {
        // For people: a kill in between leaves an empty one, which says as much to us.
        Ok(mut file) => io(file.write_all(MARKER_TEXT.as_bytes()), || format!("write {}", marker.display())),
        // Somebody else begins at the same moment; the lock decides.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => of_this_user(&marker),
        Err(source) => Err(Error::Io { doing: format!("make {}", marker.display()), source }),
    }
}

/// A marker that another user made, or that leads elsewhere, gives us no right to anything.
fn of_this_user(marker: &Path) -> Result<(), Error> {
    let meta = io(fs::symlink_metadata(marker), || format!("look at {}", marker.display()))?;
    if meta.is_file() && meta.uid() == geteuid().as_raw() {
        Ok(())
    } else {
        Err(Error::AnothersSession { marker: marker.to_path_buf() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_new_or_an_empty_folder_becomes_a_sessions_and_stays_one() -> Outcome {
        let base = tempfile::tempdir()?;
        for folder in [base.path().join("new/deep"), base.path().join("empty")] {
            if folder.ends_with("empty") {
                fs::create_dir(&folder)?;
            }
            drop(DataFolder::take(&folder)?);
            fs::create_dir(folder.join("postgres"))?;
            let again = DataFolder::take(&folder)?;
            again.clear()?;
            assert!(!folder.join("postgres").exists());
            drop(again);
            DataFolder::take(&folder)?;
        }
        Ok(())
    }

    /// Whatever it holds, also what looks like a session's, and an earlier look may not have left its lock in it.
    #[test]
    fn a_folder_that_is_no_sessions_is_refused_and_left_as_it_is() -> Outcome {
        for name in ["thesis.txt", "holdfast.toml", "lock", "server.log", "postgres"] {
            let base = tempfile::tempdir()?;
            fs::write(base.path().join(name), "years of work")?;

            let refused = DataFolder::take(base.path());

            assert!(
                matches!(&refused, Err(Error::NotASession { found, .. }) if found == name),
                "{name}: {refused:?}"
            );
            assert_eq!(fs::read_to_string(base.path().join(name))?, "years of work");
            assert_eq!(fs::read_dir(base.path())?.count(), 1, "{name}");
        }
        Ok(())
    }

    #[test]
    fn a_marker_that_is_a_link_makes_no_session() -> Outcome {
        let base = tempfile::tempdir()?;
        let ours = base.path().join("ours");
        drop(DataFolder::take(&ours)?);
        let other = base.path().join("other");
        fs::create_dir(&other)?;
        symlink(ours.join(MARKER), other.join(MARKER))?;

        let refused = DataFolder::take(&other);

        assert!(matches!(refused, Err(Error::AnothersSession { .. })), "{refused:?}");
        assert_eq!(fs::read_dir(&other)?.count(), 1);
        Ok(())
    }
}
