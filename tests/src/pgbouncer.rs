//! A private pgbouncer that lends connections by the transaction, before any PostgreSQL on this machine.
//!
//! Debian's package (`./x` installs it), on a free port, in a folder of its own; ends with its value, and with the test
//! process however that ends.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Stdio,
};

use holdfast_server::dev::ports::Lease;
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{database::Database, folder, reaper::Reaper, services::PostgresAt, wait};

/// A running (or killed) pgbouncer.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    _reaper: Reaper,
    lease: Lease,
    folder: TempDir,
}

impl PgBouncer {
    /// Before `server`, with so many connections to each of its databases.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn before(server: PostgresAt, pool_size: u32) -> Self {
        Self::that_ignores(server, pool_size, "extra_float_digits").await
    }

    /// As [`Self::before`]; it drops these parameters of a connection, and refuses all that it does not know.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn that_ignores(server: PostgresAt, pool_size: u32, parameters: &str) -> Self {
        let lease = Lease::any().expect("a port for pgbouncer");
        let folder = folder::scratch();
        let at = folder.path();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {pool_size}\nmax_client_conn = 200\nignore_startup_parameters = {parameters}\n\
             server_lifetime = 3600\nlogfile = {}\n",
            server.port,
            lease.port(),
            at.join("users.txt").display(),
            at.join("log").display(),
        );
        fs::write(at.join("pgbouncer.ini"), text).expect("write pgbouncer's configuration");
        fs::write(at.join("users.txt"), "\"postgres\" \"\"\n").expect("write pgbouncer's users");
        let (child, reaper) = spawn(at);
        let started = Self { child, _reaper: reaper, lease, folder };
        let url = PostgresAt { port: started.port() }.url("postgres");
        wait::until("pgbouncer to answer", wait::LONG, || async {
            match sqlx::PgConnection::connect(&url).await {
                Ok(connection) => {
                    let _ = connection.close().await;
                    Ok(())
                }
                Err(error) => Err((error.to_string(), started.log())),
            }
        })
        .await;
        started
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.lease.port()
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &Database) -> String {
        database.url_through(self.port())
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// SIGKILL, and a new one on the same port.
    pub async fn kill9_and_restart(&mut self) {
        let _ = self.child.kill().await;
        (self.child, self._reaper) = spawn(self.folder.path());
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn spawn(at: &Path) -> (Child, Reaper) {
    let mut command = Command::new(program());
    command.arg("pgbouncer.ini").current_dir(at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    if geteuid().is_root() {
        // It refuses to run as root.
        let user = User::from_name("postgres").expect("look up postgres").expect("the account postgres");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("open pgbouncer's folder");
        chown(at, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("give pgbouncer its folder");
    }
    let child = command.spawn().expect("start pgbouncer");
    let reaper = Reaper::of(child.id().expect("a process id"));
    (child, reaper)
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|dir| dir.join("pgbouncer")).find(|file| file.is_file());
    found.expect("pgbouncer (`./x test` installs it; or apt-get install pgbouncer)")
}
