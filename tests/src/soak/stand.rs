//! What is soaked: private servers, two services, two replicas of the real binary on fixed ports, and a proxy on every way between
//! them, so that each can be slow, deaf or cut by itself.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use holdfast_server::dev::{Postgres, RabbitMq, ports::Lease, postgres, rabbitmq};
use sqlx::Connection as _;
use tempfile::TempDir;
use tracing::Level;

use super::recorder::Recorder;
use crate::{
    chaos::Proxy,
    database::{Database, Kind, connect},
    folder,
    logs::parse_json,
    server::{ServerConfig, ServerProcess, Sink},
    services::{BrokerAt, PostgresAt},
    vhost::Vhost,
    wait::LONG,
};

/// The services. Both replicas serve both.
pub const SERVICES: [&str; 2] = ["orders", "billing"];

/// WARN and ERROR lines of the servers, by message; and what was no log line at all (a panic).
pub type Complaints = Arc<Mutex<BTreeMap<String, u64>>>;

/// One replica and its ways.
#[derive(Debug)]
pub struct Replica {
    /// The process.
    pub server: ServerProcess,
    /// To both service databases and the control database.
    pub database_link: Proxy,
    /// To the broker.
    pub broker_link: Proxy,
    /// From the writers.
    pub front_link: Proxy,
    config: ServerConfig,
    sink: Quiet,
    _port: Lease,
}

/// A sink that `Debug` passes by.
#[derive(Clone)]
struct Quiet(Sink);

impl std::fmt::Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

impl Replica {
    async fn start(
        databases: &[(&str, &Database)],
        control: &Database,
        vhost: &Vhost,
        complaints: &Complaints,
    ) -> Self {
        let database_link = Proxy::before(control.server().port).await;
        let broker_link = Proxy::before(vhost.broker().port).await;
        let port = Lease::any().expect("a port for the replica");
        let front_link = Proxy::before(port.port()).await;
        let through = database_link.port();
        let mut config =
            ServerConfig::new(&control.url_through(through), &vhost.url_through(broker_link.port()));
        for (name, database) in databases {
            config.service(name, &database.url_through(through));
        }
        config.text("", "listen", &format!("127.0.0.1:{}", port.port()));
        // A minute's waits made seconds, so that leases run out and confirms time out many times in a run.
        config
            .set("drain", "poll", "\"200ms\"")
            .set("drain", "lease", "\"4s\"")
            .set("drain", "sweep", "\"10s\"");
        config.set("broker", "confirm_timeout", "\"2s\"").set("broker", "heartbeat", "\"2s\"");
        let sink = Quiet(sink(complaints.clone()));
        let server = ServerProcess::start_with(&config, sink.0.clone()).await;
        Self { server, database_link, broker_link, front_link, config, sink, _port: port }
    }

    /// Starts a new process on the same port.
    pub async fn restart(&mut self) {
        self.server = ServerProcess::start_with(&self.config, self.sink.0.clone()).await;
    }

    /// All of its ways pass.
    pub async fn heal_links(&self) {
        for link in [&self.database_link, &self.broker_link, &self.front_link] {
            link.pass().await;
        }
    }
}

fn sink(complaints: Complaints) -> Sink {
    Arc::new(move |text, otherwise| {
        let complaint = match parse_json(text) {
            Some(line) if line.level > Level::WARN => return,
            // The message without its fields.
            Some(line) => {
                let message = serde_json::from_str::<serde_json::Value>(text).ok().and_then(|all| {
                    let fields = all.get("fields").unwrap_or(&all);
                    fields["message"].as_str().map(str::to_owned)
                });
                format!("{}: {}", line.level, message.unwrap_or(line.text))
            }
            None => format!("{otherwise} (no log line): {text}"),
        };
        if std::env::var_os("HOLDFAST_SOAK_LOG").is_some() {
            eprintln!("[server] {text}");
        }
        *complaints.lock().unwrap().entry(complaint).or_default() += 1;
    })
}

/// Everything. (The fields are dropped in this order: who connects goes first.)
#[derive(Debug)]
pub struct Stand {
    /// Both.
    pub replicas: [Replica; 2],
    /// Gets everything, straight from the broker.
    pub recorder: Recorder,
    /// Between the writers and their databases.
    pub writers_link: Proxy,
    /// By [`SERVICES`].
    pub databases: [Database; 2],
    /// What the servers complained of.
    pub complaints: Complaints,
    _control: Database,
    vhost: Vhost,
    /// PostgreSQL.
    pub postgres: Postgres,
    /// RabbitMQ.
    pub broker: RabbitMq,
    broker_folder: PathBuf,
    _folder: TempDir,
}

impl Stand {
    /// Starts it all.
    pub async fn start() -> Self {
        let folder = folder::scratch();
        let broker_folder = folder.path().join("rabbitmq");
        // No fsync: what is killed is a process, never the machine.
        let database = postgres::Options::new(folder.path().join("postgres"))
            .setting("max_connections = 200")
            .setting("fsync = off");
        let broker = rabbitmq::Options::new(&broker_folder).plugin("rabbitmq_management");
        let (postgres, broker) =
            tokio::try_join!(Postgres::start(database), RabbitMq::start(broker)).expect("start the servers");
        let at = PostgresAt { port: postgres.port() };
        let management_port = broker.management_port().expect("the management plugin's port");
        let vhost = Vhost::fresh_on(BrokerAt { port: broker.port(), management_port }).await;
        let databases = [Database::fresh(at, Kind::Service).await, Database::fresh(at, Kind::Service).await];
        let control = Database::fresh(at, Kind::Control).await;
        let recorder = Recorder::start(&vhost.url()).await;
        let writers_link = Proxy::before(at.port).await;
        let complaints = Complaints::default();
        let services = [(SERVICES[0], &databases[0]), (SERVICES[1], &databases[1])];
        let replicas = [
            Replica::start(&services, &control, &vhost, &complaints).await,
            Replica::start(&services, &control, &vhost, &complaints).await,
        ];
        Self {
            replicas,
            recorder,
            writers_link,
            databases,
            complaints,
            _control: control,
            vhost,
            postgres,
            broker,
            broker_folder,
            _folder: folder,
        }
    }

    /// PostgreSQL's and RabbitMQ's versions.
    pub async fn versions(&self) -> [String; 2] {
        let postgres: String = self.databases[0].one("SHOW server_version").await;
        let overview = self.vhost.ask("GET", "/api/overview", None).await;
        let broker = overview["rabbitmq_version"].as_str().unwrap_or("unknown").to_owned();
        [postgres.split(' ').next().unwrap_or_default().to_owned(), broker]
    }

    /// Ends sessions of whoever is connected, `most` of them; returns how many.
    pub async fn terminate_backends(&self, most: i64) -> i64 {
        let mut connection = connect(&self.databases[0].url()).await;
        let ended = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM (
                 SELECT pid FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT $1
             ) AS chosen",
        )
        .bind(most)
        .fetch_one(&mut connection)
        .await
        .expect("end sessions");
        let _ = connection.close().await;
        ended
    }

    /// `rabbitmqctl`, for what the management API cannot do.
    ///
    /// # Panics
    /// When it fails.
    pub async fn broker_control(&self, arguments: &[&str]) {
        crate::broker::control(&self.broker_folder, arguments).await;
    }

    /// Stops the replicas in order.
    ///
    /// # Panics
    /// When one does not end well.
    pub async fn stop_replicas(&mut self) {
        for replica in &self.replicas {
            replica.server.sigterm();
        }
        for replica in &mut self.replicas {
            let status = replica.server.exit_status(LONG + Duration::from_secs(5)).await;
            assert!(status.success(), "a replica ended with {status}");
        }
    }
}
