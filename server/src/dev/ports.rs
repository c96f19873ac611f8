//! Free ports that two processes never get at the same time.
//!
//! A [`Lease`] is a port below the ephemeral range (32768 and up, where any outgoing connection may sit on it)
//! that could be bound a moment ago, and a file lock that keeps every other process of the same user that asks
//! here from getting it too. The lock ends with the process, however it ends.
//!
//! Not guaranteed: a program that does not ask here, or another user, can still take the port between the test
//! and its use; who starts a server tries again with another port ([`super::Error::is_port_taken`]).

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::ErrorKind,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::{
    fcntl::OFlag,
    unistd::{Uid, geteuid},
};
use rand::Rng;

use super::error::{Error, io};

/// Lowest port handed out; below it live well-known services.
const FROM: u16 = 20_000;
/// One above the highest port handed out; the ephemeral range starts at 32768.
const TO: u16 = 32_000;

/// A port that is ours as long as this value lives.
#[derive(Debug)]
pub struct Lease {
    port: u16,
    /// Held, not read: the lock goes with the open file.
    _lock: Option<File>,
}

impl Lease {
    /// Some free port.
    ///
    /// # Errors
    /// When the lock folder cannot be used, or nothing is free.
    pub fn any() -> Result<Self, Error> {
        // A random start: parallel processes walk different stretches and seldom meet.
        let span = TO - FROM;
        let start = rand::rng().random_range(0..span);
        for step in 0..span {
            if let Some(lease) = Self::try_port(FROM + (start + step) % span)? {
                return Ok(lease);
            }
        }
        Err(Error::NoFreePort { from: FROM, to: TO })
    }

    /// This port if it is free, else some other: for what should stay where it was.
    ///
    /// # Errors
    /// As [`Lease::any`].
    pub fn rather(port: Option<u16>) -> Result<Self, Error> {
        if let Some(port) = port.filter(|port| (FROM..TO).contains(port))
            && let Some(lease) = Self::try_port(port)?
        {
            return Ok(lease);
        }
        Self::any()
    }

    /// `None` if somebody has it.
    fn try_port(port: u16) -> Result<Option<Self>, Error> {
        let user = geteuid();
        let folder = std::env::temp_dir().join(format!("holdfast-ports-{user}"));
        make_private(&folder, user)?;
        let path = folder.join(port.to_string());
        let lock = io(open(&path), || format!("open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(Error::Io { doing: format!("lock {}", path.display()), source });
            }
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        Ok(free.then_some(Self { port, _lock: Some(lock) }))
    }

    /// The port that the caller insists on; nothing is tested or locked.
    #[must_use]
    pub fn fixed(port: u16) -> Self {
        Self { port, _lock: None }
    }

    /// `port` if there is one, else rather `wish` than some other free port.
    ///
    /// # Errors
    /// As [`Lease::any`].
    pub fn of(port: Option<u16>, wish: Option<u16>) -> Result<Self, Error> {
        port.map_or_else(|| Self::rather(wish), |port| Ok(Self::fixed(port)))
    }

    /// Its number.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Makes the folder if it is not there. Its name can be guessed and lies where everybody may write: what somebody else made there,
/// a link for instance, is not used.
fn make_private(folder: &Path, user: Uid) -> Result<(), Error> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(source) => {
            return Err(Error::Io { doing: format!("make the folder {}", folder.display()), source });
        }
    }
    // Not of what a link leads to. From here on it stays: in a place with the sticky bit nobody else can take it away.
    let meta = io(fs::symlink_metadata(folder), || format!("look at {}", folder.display()))?;
    let mode = meta.mode() & 0o777;
    let but = if !meta.is_dir() {
        "it is no folder".to_owned()
    } else if meta.uid() != user.as_raw() {
        format!("it is user {}'s", meta.uid())
    } else if mode != 0o700 {
        format!("its mode is {mode:04o}")
    } else {
        return Ok(());
    };
    Err(Error::UnsafeFolder { folder: folder.to_path_buf(), but })
}

/// Nothing is ever written to it, and a link is not followed.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn locks_are_kept_only_in_a_folder_of_our_own_that_is_closed_to_others() -> std::io::Result<()> {
        let base = tempfile::tempdir()?;
        let (me, folder) = (geteuid(), base.path().join("locks"));
        let refused = |folder: &Path, user: Uid| match make_private(folder, user) {
            Err(Error::UnsafeFolder { but, .. }) => but,
            other => format!("{other:?}"),
        };
        assert!(make_private(&folder, me).is_ok() && make_private(&folder, me).is_ok());

        let other = Uid::from_raw(me.as_raw() + 1);
        assert_eq!(refused(&folder, other), format!("it is user {me}'s"));
        symlink(&folder, base.path().join("link"))?;
        assert_eq!(refused(&base.path().join("link"), me), "it is no folder");
        fs::write(base.path().join("file"), "")?;
        assert_eq!(refused(&base.path().join("file"), me), "it is no folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        assert_eq!(refused(&folder, me), "its mode is 0755");
        Ok(())
    }

    #[test]
    fn a_lock_is_never_a_link_and_what_is_in_it_stays() -> std::io::Result<()> {
        let base = tempfile::tempdir()?;
        let (thesis, link) = (base.path().join("thesis.txt"), base.path().join("20000"));
        fs::write(&thesis, "years of work")?;
        symlink(&thesis, &link)?;

        assert!(open(&link).is_err());
        open(&thesis)?;

        assert_eq!(fs::read_to_string(&thesis)?, "years of work");
        Ok(())
    }

    #[test]
    fn two_leases_held_at_once_are_two_ports_below_the_ephemeral_range() -> Result<(), Error> {
        let (one, two) = (Lease::any()?, Lease::any()?);
        assert_ne!(one.port(), two.port());
        assert!(one.port() < 32_768 && two.port() < 32_768);
        Ok(())
    }

    #[test]
    fn a_port_is_had_again_when_it_is_free_and_another_when_it_is_not() -> Result<(), Error> {
        let first = Lease::any()?;
        let port = first.port();
        assert_ne!(Lease::rather(Some(port))?.port(), port);
        drop(first);
        assert_eq!(Lease::rather(Some(port))?.port(), port);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        assert!(taken.is_err() || Lease::rather(Some(port))?.port() != port);
        Ok(())
    }
}
