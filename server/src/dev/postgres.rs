//! A private PostgreSQL.
//!
//! The cluster lives in `dir/data`, its log in `dir/log`. Authentication is `trust`, the superuser `postgres`,
//! the encoding UTF8, the locale C. There is no Unix socket: its path is limited to 107 bytes, and its lock
//! file could keep a restart from happening after a SIGKILL of everything.
//!
//! Every way a server can end is here: [`Postgres::stop`] (fast), [`Postgres::kill_immediate`] (no checkpoint,
//! recovery at the next start) and [`Postgres::kill9`] (no code of the server runs any more). After each,
//! [`Postgres::start_again`] brings it back in the same folder on the same port.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid};
use sqlx::{ConnectOptions as _, Connection as _, postgres::PgConnectOptions};

use super::{
    account::Account,
    error::{Error, io},
    ports::Lease,
    process,
    supervised::{Spec, Supervised, tail},
};

const SERVER: &str = "PostgreSQL";
const INSTALL: &str = "apt-get install postgresql, or name its folder in HOLDFAST_PG_BIN";
/// Names the folder with `initdb` and `postgres`.
const BIN_VARIABLE: &str = "HOLDFAST_PG_BIN";

/// How to start it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for data and log; made if it is not there, a cluster in it is used again.
    pub dir: PathBuf,
    /// The port; `None` takes a free one.
    pub port: Option<u16>,
    /// The port to take rather than any other that is free, if `port` is `None`.
    pub wish: Option<u16>,
    /// Lines for `postgresql.conf`; they win over ours.
    pub settings: Vec<String>,
    /// How long to wait for the first connection, recovery included.
    pub ready_within: Duration,
    /// The folder with `initdb` and `postgres`; `None` looks for the machine's.
    pub bin: Option<PathBuf>,
}

impl Options {
    /// The defaults, in `dir`: a free port, 200 connections, 64 prepared transactions.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            port: None,
            wish: None,
            settings: Vec::new(),
            ready_within: Duration::from_secs(60),
            bin: None,
        }
    }

    /// One more line for `postgresql.conf`.
    #[must_use]
    pub fn setting(mut self, line: impl Into<String>) -> Self {
        self.settings.push(line.into());
        self
    }
}

/// A private PostgreSQL; dropping it shuts it down at once (`immediate`) and blocks until it is gone.
#[derive(Debug)]
pub struct Postgres {
    options: Options,
    bin: PathBuf,
    account: Account,
    lease: Lease,
    running: Option<Supervised>,
}

impl Postgres {
    /// Makes the cluster if the folder has none, starts it, and returns when it takes connections.
    ///
    /// # Errors
    /// A missing program or account, a folder that the server's account cannot use, or a server that does not
    /// come up.
    pub async fn start(mut options: Options) -> Result<Self, Error> {
        options.dir = io(std::path::absolute(&options.dir), || format!("find {}", options.dir.display()))?;
        let bin = options.bin.clone().map_or_else(find_bin, Ok)?;
        let account = Account::for_server("postgres", INSTALL)?;
        let prepare = {
            let (bin, account, options) = (bin.clone(), account.clone(), options.clone());
            move || prepare(&bin, &account, &options)
        };
        tokio::task::spawn_blocking(prepare)
            .await
            .map_err(|error| Error::Io { doing: "prepare the cluster".to_owned(), source: error.into() })??;
        if !options.dir.join("data/PG_VERSION").is_file() {
            make_cluster(&bin, &account, &options.dir).await?;
        }
        let lease = Lease::of(options.port, options.wish)?;
        let mut server = Self { options, bin, account, lease, running: None };
        let mut tries = 0;
        loop {
            match server.start_again().await {
                Err(error) if error.is_port_taken() && server.options.port.is_none() && tries < 5 => {
                    tries += 1;
                    server.lease = Lease::any()?;
                }
                other => return other.map(|()| server),
            }
        }
    }

    /// Starts it after it ended, in the same folder and on the same port. Does nothing if it runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        if self.is_running() {
            return Ok(());
        }
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.try_start().await {
                // Backends of a killed postmaster end by themselves, a moment later.
                Err(Error::DidNotStart { log, .. })
                    if log.contains("pre-existing shared memory block") && Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return other,
            }
        }
    }

    async fn try_start(&mut self) -> Result<(), Error> {
        self.running = None;
        let data = self.data();
        self.account.write(&data.join("holdfast.conf"), &self.configuration())?;
        clear_stale_pid_file(&data)?;
        let mut command = self.account.command(&self.bin.join("postgres"));
        command.arg("-D").arg(&data);
        let running = self.running.insert(Supervised::spawn(Spec {
            server: SERVER,
            account: &self.account,
            command,
            dir: &self.options.dir,
            log: self.options.dir.join("log"),
            gentle: Signal::SIGQUIT,
        })?);
        let ready = ready(running, self.lease.port(), self.options.ready_within).await;
        if ready.is_err() {
            self.running = None;
        }
        ready
    }

    /// Shuts it down in order (`fast`: sessions are ended, a checkpoint is written).
    ///
    /// # Errors
    /// When it does not end within a minute; it is killed then.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.end(Signal::SIGINT).await
    }

    /// Shuts it down without a checkpoint (`immediate`): the next start recovers from the log.
    ///
    /// # Errors
    /// When it does not end within a minute; it is killed then.
    pub async fn kill_immediate(&mut self) -> Result<(), Error> {
        self.end(Signal::SIGQUIT).await
    }

    /// SIGKILL for every process of it.
    pub async fn kill9(&mut self) {
        if let Some(running) = &mut self.running {
            running.kill9().await;
        }
    }

    /// Does the server's process run?
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| running.exited().is_none())
    }

    /// The process id of the postmaster, while it runs.
    pub fn pid(&mut self) -> Option<i32> {
        if self.is_running() { self.running.as_ref().map(|running| running.pid().as_raw()) } else { None }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.lease.port()
    }

    /// The URL of a database for the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// The end of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.options.dir.join("log"))
    }

    async fn end(&mut self, signal: Signal) -> Result<(), Error> {
        match &mut self.running {
            Some(running) => running.end(signal, Duration::from_secs(60)).await,
            None => Ok(()),
        }
    }

    fn data(&self) -> PathBuf {
        self.options.dir.join("data")
    }

    fn configuration(&self) -> String {
        let mut text = format!("listen_addresses = '127.0.0.1'\nport = {}\n", self.port());
        // Dynamic shared memory in the data folder: in /dev/shm a killed server would leave it for ever.
        text += "unix_socket_directories = ''\ndynamic_shared_memory_type = mmap\n";
        text += "max_connections = 200\nmax_prepared_transactions = 64\n";
        for line in &self.options.settings {
            text += line;
            text.push('\n');
        }
        text
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.running = None;
        // Only a killed server leaves a pid file; if the folder is used again, PostgreSQL sees that it is stale.
        if let Some(file) = pid_file(&self.data()) {
            remove_segment(&file);
        }
    }
}

/// Waits for the first connection.
async fn ready(running: &mut Supervised, port: u16, within: Duration) -> Result<(), Error> {
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("postgres")
        .database("postgres")
        .ssl_mode(sqlx::postgres::PgSslMode::Disable)
        .disable_statement_logging();
    let until = Instant::now() + within;
    loop {
        let last = match options.connect().await {
            Ok(connection) => {
                let _ = connection.close().await;
                return Ok(());
            }
            Err(error) => error,
        };
        if let Some(status) = running.exited() {
            return Err(running.did_not_start(status.to_string()));
        }
        if Instant::now() > until {
            return Err(running.did_not_start(format!("not ready within {within:?}: {last}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The folder that holds `initdb` and `postgres`.
fn find_bin() -> Result<PathBuf, Error> {
    let has_both = |dir: &Path| dir.join("initdb").is_file() && dir.join("postgres").is_file();
    if let Some(dir) = std::env::var_os(BIN_VARIABLE).map(PathBuf::from) {
        return if has_both(&dir) {
            Ok(dir)
        } else {
            Err(missing(format!("{BIN_VARIABLE}={}", dir.display())))
        };
    }
    if let Some(dir) = newest(Path::new("/usr/lib/postgresql")).filter(|dir| has_both(dir)) {
        return Ok(dir);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|dir| has_both(dir))
        .ok_or_else(|| missing("/usr/lib/postgresql/*/bin and PATH".to_owned()))
}

fn missing(looked_in: String) -> Error {
    Error::MissingProgram { program: "PostgreSQL (initdb, postgres)", looked_in, install: INSTALL }
}

/// `base/N/bin` with the highest number N.
fn newest(base: &Path) -> Option<PathBuf> {
    let majors = fs::read_dir(base).ok()?.flatten().filter_map(|entry| {
        let major: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((major, entry.path().join("bin")))
    });
    majors.max_by_key(|(major, _)| *major).map(|(_, path)| path)
}

/// Is everything there that a start needs of this machine?
pub(super) fn preflight() -> Result<(), Error> {
    find_bin()?;
    Account::for_server("postgres", INSTALL)?;
    Ok(())
}

/// Makes the folder.
fn prepare(bin: &Path, account: &Account, options: &Options) -> Result<(), Error> {
    account.own_folder(&options.dir)?;
    account.can_reach(&options.dir)?;
    account.can_reach(&bin.join("postgres"))
}

/// Makes the cluster, whole or not at all: a name that says "finished" is given to it when it is. Like a server it does not
/// outlive us.
async fn make_cluster(bin: &Path, account: &Account, dir: &Path) -> Result<(), Error> {
    let new = dir.join("data.new");
    if new.exists() {
        io(fs::remove_dir_all(&new), || format!("remove {}", new.display()))?;
    }
    let mut command = account.command(&bin.join("initdb"));
    command.arg("-D").arg(&new);
    // No sync: the folder is minutes old, a power cut in between costs nothing.
    command.args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    let log = dir.join("initdb.log");
    let mut running = Supervised::spawn(Spec {
        server: "initdb",
        account,
        command,
        dir,
        log: log.clone(),
        gentle: Signal::SIGTERM,
    })?;
    let status = loop {
        match running.exited() {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    if !status.success() {
        return Err(Error::Program { program: "initdb", status: status.to_string(), output: tail(&log) });
    }
    let main = new.join("postgresql.conf");
    let text = io(fs::read_to_string(&main), || format!("read {}", main.display()))?;
    account.write(&main, &format!("{text}\ninclude 'holdfast.conf'\n"))?;
    io(fs::rename(&new, dir.join("data")), || format!("rename {}", new.display()))
}

/// What `postmaster.pid` says.
#[derive(Debug, PartialEq, Eq)]
struct PidFile {
    pid: Pid,
    segment: Option<Segment>,
}

/// A System V segment.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    /// Signed in `/proc`, and extended to 64 bits in the pid file; the same 32 bits.
    key: u32,
    id: i32,
}

fn pid_file(data: &Path) -> Option<PidFile> {
    PidFile::parse(&fs::read_to_string(data.join("postmaster.pid")).ok()?)
}

impl PidFile {
    /// Line 1 is the process id, line 7 the shared memory's key and id.
    fn parse(text: &str) -> Option<Self> {
        let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?);
        let segment = |line: &str| {
            let mut numbers = line.split_whitespace();
            let key = low_half(numbers.next()?.parse::<u64>().ok()?);
            Some(Segment { key, id: numbers.next()?.parse().ok()? })
        };
        Some(Self { pid, segment: text.lines().nth(6).and_then(segment) })
    }

    /// The segment's id, if `/proc/sysvipc/shm` shows that this server made it: a file that outlived a restart of the machine names
    /// an id that may be anybody's by now.
    fn own_segment(&self, table: &str) -> Option<i32> {
        let segment = self.segment.as_ref()?;
        let is_it = |line: &str| {
            // key, id, mode, size, the process that made it
            let numbers: Vec<i64> =
                line.split_whitespace().take(5).map_while(|word| word.parse().ok()).collect();
            let &[key, id, _, _, maker] = numbers.as_slice() else { return false };
            low_half(key.cast_unsigned()) == segment.key
                && id == i64::from(segment.id)
                && maker == i64::from(self.pid.as_raw())
        };
        table.lines().any(is_it).then_some(segment.id)
    }
}

fn low_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Removes the pid file of a killed server where PostgreSQL would not dare to.
///
/// It copes with a stale file by itself, and cleans up what the file names, unless the number in it meanwhile
/// belongs to another process of the same account; and all private servers of root share one account. So it is
/// asked here whether that process is a server of *this* folder.
fn clear_stale_pid_file(data: &Path) -> Result<(), Error> {
    let Some(file) = pid_file(data) else { return Ok(()) };
    let pid = file.pid;
    if !process::is_alive(pid) {
        return Ok(());
    }
    if process::command_line(pid).is_some_and(|line| line.contains(&*data.to_string_lossy())) {
        return Err(Error::AlreadyRunning { dir: data.to_path_buf(), pid: pid.as_raw() });
    }
    remove_segment(&file);
    let path = data.join("postmaster.pid");
    io(fs::remove_file(&path), || format!("remove {}", path.display()))
}

/// Removes the System V segment of some bytes that a killed server leaves; a machine has only 4,096 of them. Only if it is that
/// server's own. Best effort: PostgreSQL uses a segment that was left again.
fn remove_segment(file: &PidFile) {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    if let Some(id) = file.own_segment(&table) {
        let _ = Command::new("ipcrm").args(["-m", &id.to_string()]).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "471\n/d\n1700000000\n20001\n\n127.0.0.1\n  1234  99\nready   \n";

    #[test]
    fn the_pid_file_gives_the_process_and_its_shared_memory() {
        let pid = Pid::from_raw(471);
        let expected = PidFile { pid, segment: Some(Segment { key: 1234, id: 99 }) };
        assert_eq!(PidFile::parse(TEXT), Some(expected));
        assert_eq!(PidFile::parse("471\n/d\n"), Some(PidFile { pid, segment: None }));
        assert_eq!(PidFile::parse(""), None);
    }

    /// The machine's table, with one segment.
    fn table(key: i64, id: i32, maker: i32) -> String {
        format!(
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid\n\
             {key:>10} {id:>10}   600                    56 {maker:>5}  2270      0   101   104\n"
        )
    }

    #[test]
    fn a_segment_is_a_servers_own_only_by_key_id_and_maker() {
        let own = |text: &str, table: &str| PidFile::parse(text).and_then(|file| file.own_segment(table));

        assert_eq!(own(TEXT, &table(1234, 99, 471)), Some(99));
        for anothers in [table(1235, 99, 471), table(1234, 98, 471), table(1234, 99, 472), String::new()] {
            assert_eq!(own(TEXT, &anothers), None, "{anothers}");
        }
        // A key with its highest bit set.
        let negative = TEXT.replace("  1234  ", &format!("  {}  ", u64::MAX - 4));
        assert_eq!(own(&negative, &table(-5, 99, 471)), Some(99));
    }
}
