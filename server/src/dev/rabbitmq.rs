//! A private RabbitMQ.
//!
//! Everything that RabbitMQ shares between nodes of a machine is its own: node name, cookie, home, distribution
//! port and the port mapper (`epmd`), which is started here in the foreground because the one that Erlang
//! starts by itself would outlive the broker. The data live in `dir/mnesia`, logs in `dir/log`; `dir/env` is
//! for people: `set -a; . dir/env; rabbitmqctl status`. The account is guest/guest.
//!
//! Readiness is the broker's answer to an AMQP header, never a rabbitmqctl call (6 to 14 s each).

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use rand::{Rng, distr::Alphanumeric};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    account::Account,
    error::{Error, io},
    ports::Lease,
    supervised::{Spec, Supervised, tail},
};

const SERVER: &str = "RabbitMQ";
const INSTALL: &str = "apt-get install rabbitmq-server, or name its folder in HOLDFAST_RABBITMQ_BIN";
/// Names the folder with the *script* `rabbitmq-server`, not the wrapper of a distribution's package.
const BIN_VARIABLE: &str = "HOLDFAST_RABBITMQ_BIN";
/// Fixed, so that a folder can be started again on other ports: the data are bound to it.
const NODE: &str = "holdfast@localhost";

/// How to start it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for everything; made if it is not there, the data in it are used again.
    pub dir: PathBuf,
    /// The AMQP port; `None` takes a free one.
    pub port: Option<u16>,
    /// The ports to take rather than any others that are free: AMQP (if `port` is `None`), distribution, port mapper.
    pub wishes: [Option<u16>; 3],
    /// Plugins beyond none; `rabbitmq_management` also gets a port, see [`RabbitMq::management_port`].
    pub plugins: Vec<String>,
    /// The management plugin's port; `None` takes a free one.
    pub management_port: Option<u16>,
    /// A definitions file (vhosts, accounts, queues) that is loaded at each start.
    pub definitions: Option<PathBuf>,
    /// Lines for `rabbitmq.conf`; they win over ours.
    pub settings: Vec<String>,
    /// How long to wait for the first AMQP answer.
    pub ready_within: Duration,
}

impl Options {
    /// The defaults, in `dir`: free ports, no plugin, guest/guest.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            port: None,
            wishes: [None; 3],
            plugins: Vec::new(),
            management_port: None,
            definitions: None,
            settings: Vec::new(),
            ready_within: Duration::from_secs(120),
        }
    }

    /// With this plugin.
    #[must_use]
    pub fn plugin(mut self, name: impl Into<String>) -> Self {
        self.plugins.push(name.into());
        self
    }

    /// One more line for `rabbitmq.conf`.
    #[must_use]
    pub fn setting(mut self, line: impl Into<String>) -> Self {
        self.settings.push(line.into());
        self
    }
}

#[derive(Debug)]
struct Ports {
    amqp: Lease,
    distribution: Lease,
    mapper: Lease,
    management: Option<Lease>,
}

impl Ports {
    fn lease(options: &Options) -> Result<Self, Error> {
        let management = options.plugins.iter().any(|name| name == "rabbitmq_management");
        Ok(Self {
            amqp: Lease::of(options.port, options.wishes[0])?,
            distribution: Lease::rather(options.wishes[1])?,
            mapper: Lease::rather(options.wishes[2])?,
            management: if management { Some(Lease::of(options.management_port, None)?) } else { None },
        })
    }
}

/// A private RabbitMQ; dropping it kills it and blocks until it is gone.
#[derive(Debug)]
pub struct RabbitMq {
    options: Options,
    server: PathBuf,
    epmd: PathBuf,
    account: Account,
    ports: Ports,
    running: Option<Supervised>,
    mapper: Option<Supervised>,
}

impl RabbitMq {
    /// Starts a broker in the folder, and returns when it serves AMQP (and, with the plugin, management).
    ///
    /// # Errors
    /// A missing program or account, a folder that the broker's account cannot use, or a broker that does not
    /// come up.
    pub async fn start(mut options: Options) -> Result<Self, Error> {
        options.dir = io(std::path::absolute(&options.dir), || format!("find {}", options.dir.display()))?;
        let (server, epmd) = (find_server()?, find_epmd()?);
        let account = Account::for_server("rabbitmq", INSTALL)?;
        for dir in [
            options.dir.clone(),
            options.dir.join("home"),
            options.dir.join("mnesia"),
            options.dir.join("log"),
        ] {
            account.own_folder(&dir)?;
        }
        account.can_reach(&options.dir)?;
        account.can_reach(&server)?;
        let cookie = options.dir.join("home/.erlang.cookie");
        if !cookie.exists() {
            let secret: String = rand::rng().sample_iter(Alphanumeric).take(24).map(char::from).collect();
            account.write(&cookie, &secret)?;
        }
        let ports = Ports::lease(&options)?;
        let mut broker = Self { options, server, epmd, account, ports, running: None, mapper: None };
        let mut tries = 0;
        loop {
            match broker.start_again().await {
                Err(error) if error.is_port_taken() && broker.options.port.is_none() && tries < 5 => {
                    tries += 1;
                    broker.options.wishes = [None; 3];
                    broker.ports = Ports::lease(&broker.options)?;
                }
                other => return other.map(|()| broker),
            }
        }
    }

    /// Starts it after it ended, in the same folder and on the same ports. Does nothing if it runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        if self.is_running() {
            return Ok(());
        }
        (self.running, self.mapper) = (None, None);
        let started = self.try_start().await;
        if started.is_err() {
            (self.running, self.mapper) = (None, None);
        }
        started
    }

    async fn try_start(&mut self) -> Result<(), Error> {
        let dir = self.options.dir.clone();
        self.account.write(&dir.join("rabbitmq.conf"), &self.configuration())?;
        self.account
            .write(&dir.join("enabled_plugins"), &format!("[{}].\n", self.options.plugins.join(",")))?;
        let variables = self.variables();
        let lines = variables.iter().map(|(name, value)| format!("{name}='{value}'\n"));
        self.account.write(&dir.join("env"), &lines.collect::<String>())?;

        let until = Instant::now() + self.options.ready_within;
        let mut command = self.account.command(&self.epmd);
        let mapper_port = self.ports.mapper.port();
        command.args(["-port", &mapper_port.to_string(), "-address", "127.0.0.1"]);
        let mapper = self.mapper.insert(Supervised::spawn(Spec {
            server: "RabbitMQ's port mapper (epmd)",
            account: &self.account,
            command,
            dir: &dir,
            log: dir.join("log/epmd"),
            gentle: Signal::SIGKILL,
        })?);
        answers(mapper, until, || connects(mapper_port)).await?;

        let mut command = self.account.command(&self.server);
        command.envs(variables);
        let running = self.running.insert(Supervised::spawn(Spec {
            server: SERVER,
            account: &self.account,
            command,
            dir: &dir,
            log: dir.join("log/out"),
            gentle: Signal::SIGTERM,
        })?);
        let amqp = self.ports.amqp.port();
        answers(running, until, || speaks_amqp(amqp)).await?;
        if let Some(management) = self.ports.management.as_ref().map(Lease::port) {
            answers(running, until, || connects(management)).await?;
        }
        Ok(())
    }

    /// Shuts it down in order.
    ///
    /// # Errors
    /// When it does not end within a minute; it is killed then.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let ended = match &mut self.running {
            Some(running) => running.end(Signal::SIGTERM, Duration::from_secs(60)).await,
            None => Ok(()),
        };
        self.mapper = None;
        ended
    }

    /// SIGKILL for every process of it, its port mapper included.
    pub async fn kill9(&mut self) {
        for process in [&mut self.running, &mut self.mapper].into_iter().flatten() {
            process.kill9().await;
        }
    }

    /// Does the broker's process run?
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| running.exited().is_none())
    }

    /// The process ids of the broker and its port mapper, as far as they run.
    pub fn pids(&mut self) -> Vec<i32> {
        let both = [&mut self.running, &mut self.mapper].into_iter().flatten();
        both.filter_map(|one| if one.exited().is_none() { Some(one.pid().as_raw()) } else { None }).collect()
    }

    /// The AMQP port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.amqp.port()
    }

    /// All ports that another start may wish for: AMQP, distribution, port mapper.
    #[must_use]
    pub fn ports(&self) -> [u16; 3] {
        [self.ports.amqp.port(), self.ports.distribution.port(), self.ports.mapper.port()]
    }

    /// The port of the management API on 127.0.0.1, if the plugin is on.
    #[must_use]
    pub fn management_port(&self) -> Option<u16> {
        self.ports.management.as_ref().map(Lease::port)
    }

    /// The URL of a vhost for guest; `/` is the default vhost. The name must need no escaping.
    #[must_use]
    pub fn amqp_url(&self, vhost: &str) -> String {
        let vhost = if vhost == "/" { "%2f" } else { vhost };
        format!("amqp://guest:guest@127.0.0.1:{}/{vhost}", self.port())
    }

    /// The end of the broker's output and of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.options.dir.join("log");
        tail(&log.join("out")) + &tail(&log.join(format!("{NODE}.log")))
    }

    fn configuration(&self) -> String {
        // The limits are absolute: a share of the machine's memory would be shared with everything else on it.
        let mut text = "loopback_users = none\nlog.console = true\nlog.console.level = warning\n\
                        log.file.level = warning\nvm_memory_high_watermark.absolute = 512MB\n\
                        disk_free_limit.absolute = 100MB\n"
            .to_owned();
        if let Some(port) = self.management_port() {
            text += &format!("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n");
        }
        if let Some(path) = &self.options.definitions {
            text += &format!("load_definitions = {}\n", path.display());
        }
        for line in &self.options.settings {
            text += line;
            text.push('\n');
        }
        text
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let at = |name: &str| self.options.dir.join(name).display().to_string();
        let local = "-kernel inet_dist_use_interface {127,0,0,1}";
        vec![
            ("HOME", at("home")),
            // The script then becomes the broker instead of waiting for it: one process id, one signal.
            ("RUNNING_UNDER_SYSTEMD", "true".to_owned()),
            ("RABBITMQ_NODENAME", NODE.to_owned()),
            ("RABBITMQ_NODE_IP_ADDRESS", Ipv4Addr::LOCALHOST.to_string()),
            ("RABBITMQ_NODE_PORT", self.port().to_string()),
            ("RABBITMQ_DIST_PORT", self.ports.distribution.port().to_string()),
            ("ERL_EPMD_PORT", self.ports.mapper.port().to_string()),
            ("ERL_EPMD_ADDRESS", Ipv4Addr::LOCALHOST.to_string()),
            ("RABBITMQ_MNESIA_BASE", at("mnesia")),
            ("RABBITMQ_LOG_BASE", at("log")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
            ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
            ("RABBITMQ_CONF_ENV_FILE", at("none")),
            ("RABBITMQ_PID_FILE", at("pid")),
            // For every Erlang program of this node: the port mapper is there, do not start another.
            ("ERL_ZFLAGS", "-start_epmd false".to_owned()),
            // Two schedulers that sleep when idle: many brokers may run beside each other.
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("{local} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"),
            ),
            ("RABBITMQ_CTL_ERL_ARGS", local.to_owned()),
        ]
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        // Killed, not asked: an orderly stop takes seconds and whoever wants one calls `stop`.
        for process in [&mut self.running, &mut self.mapper].into_iter().flatten() {
            process.kill_now();
        }
    }
}

/// Asks until the answer is yes, the process ends, or the time is over.
async fn answers<F, A>(process: &mut Supervised, until: Instant, ask: F) -> Result<(), Error>
where
    F: Fn() -> A,
    A: Future<Output = bool>,
{
    loop {
        if ask().await {
            return Ok(());
        }
        if let Some(status) = process.exited() {
            return Err(process.did_not_start(status.to_string()));
        }
        if Instant::now() > until {
            return Err(process.did_not_start("not ready in time".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn connects(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()
}

/// Is an AMQP 0-9-1 header answered with a method frame (type 1)? A bound port alone means nothing.
async fn speaks_amqp(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await.ok()?;
        stream.read_u8().await.ok()
    };
    matches!(timeout(Duration::from_secs(2), ask).await, Ok(Some(1)))
}

/// Is everything there that a start needs of this machine?
pub(super) fn preflight() -> Result<(), Error> {
    find_server()?;
    find_epmd()?;
    Account::for_server("rabbitmq", INSTALL)?;
    Ok(())
}

fn find_server() -> Result<PathBuf, Error> {
    if let Some(dir) = std::env::var_os(BIN_VARIABLE).map(PathBuf::from) {
        let path = dir.join("rabbitmq-server");
        return if path.is_file() {
            Ok(path)
        } else {
            Err(missing("rabbitmq-server", format!("{BIN_VARIABLE}={}", dir.display())))
        };
    }
    // A distribution's wrapper in PATH would change the account and the environment; this is the script itself.
    let script = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    if script.is_file() {
        return Ok(script.to_owned());
    }
    in_path("rabbitmq-server")
        .ok_or_else(|| missing("rabbitmq-server", "/usr/lib/rabbitmq/bin and PATH".to_owned()))
}

fn find_epmd() -> Result<PathBuf, Error> {
    in_path("epmd")
        .or_else(|| Some(PathBuf::from("/usr/lib/erlang/bin/epmd")).filter(|path| path.is_file()))
        .ok_or_else(|| missing("epmd", "PATH and /usr/lib/erlang/bin".to_owned()))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())?;
    fs::canonicalize(found).ok()
}

fn missing(program: &'static str, looked_in: String) -> Error {
    Error::MissingProgram { program, looked_in, install: INSTALL }
}
