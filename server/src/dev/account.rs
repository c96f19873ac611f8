//! Which account a private server runs under, and folders that this account can use.
//!
//! PostgreSQL refuses to run as root and RabbitMQ should not: as root we drop to the system account that the
//! package made. Everybody else runs the servers as himself.

use std::{
    fs,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use nix::unistd::{User, geteuid};

use super::error::{Error, io};

/// The account to drop to; `None` stays who we are.
#[derive(Debug, Clone)]
pub(super) struct Account(Option<User>);

impl Account {
    /// `name` if we are root, else ourselves.
    pub(super) fn for_server(name: &'static str, install: &'static str) -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Ok(Self(None));
        }
        match User::from_name(name) {
            Ok(Some(user)) => Ok(Self(Some(user))),
            Ok(None) => Err(Error::MissingAccount { account: name, install }),
            Err(errno) => {
                Err(Error::Io { doing: format!("look up the account {name}"), source: errno.into() })
            }
        }
    }

    /// A command that will run under this account, with an environment of its own: what the caller's shell
    /// exports for some other server must not reach this one.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into());
        command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8");
        if let Some(user) = &self.0 {
            // The standard library drops the supplementary groups by itself when root sets a uid.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Makes `dir` if it is not there, and gives it to the account, closed to others.
    pub(super) fn own_folder(&self, dir: &Path) -> Result<(), Error> {
        io(fs::DirBuilder::new().recursive(true).mode(0o755).create(dir), || {
            format!("make the folder {}", dir.display())
        })?;
        io(fs::set_permissions(dir, fs::Permissions::from_mode(0o700)), || {
            format!("chmod {}", dir.display())
        })?;
        self.own(dir)
    }

    /// Writes a file that belongs to the account and that only it can read.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        // Removed first: a file of mode 400 could not be opened for writing again.
        let _ = fs::remove_file(path);
        io(fs::write(path, text), || format!("write {}", path.display()))?;
        io(fs::set_permissions(path, fs::Permissions::from_mode(0o600)), || {
            format!("chmod {}", path.display())
        })?;
        self.own(path)
    }

    /// Gives a path to the account.
    pub(super) fn own(&self, path: &Path) -> Result<(), Error> {
        let Some(user) = &self.0 else { return Ok(()) };
        io(chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())), || {
            format!("give {} to {}", path.display(), user.name)
        })
    }

    /// Fails if a folder on the way to `path` is closed to the account. Access lists are not looked at.
    pub(super) fn can_reach(&self, path: &Path) -> Result<(), Error> {
        let Some(user) = &self.0 else { return Ok(()) };
        let path = io(fs::canonicalize(path), || format!("find {}", path.display()))?;
        for folder in path.ancestors().skip(1) {
            let meta = io(fs::metadata(folder), || format!("look at {}", folder.display()))?;
            let bit = if meta.uid() == user.uid.as_raw() {
                0o100
            } else if meta.gid() == user.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            if meta.mode() & bit == 0 {
                return Err(Error::Untraversable {
                    account: user.name.clone(),
                    folder: folder.to_path_buf(),
                    path: path.clone(),
                });
            }
        }
        Ok(())
    }
}
