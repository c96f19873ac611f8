//! What `holdfast dev` runs on: a private PostgreSQL and RabbitMQ in a data folder that is kept, and a configuration for
//! a server on top of them, with two services whose databases are made and migrated.

use std::path::PathBuf;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{DataFolder, Error, Postgres, RabbitMq, ports, postgres, rabbitmq};

/// The services of a development session.
pub const SERVICES: [&str; 2] = ["orders", "billing"];
const CONTROL: &str = "control";
const VHOST: &str = "/";

/// Both private servers, running.
#[derive(Debug)]
pub struct Session {
    /// PostgreSQL.
    pub postgres: Postgres,
    /// RabbitMQ.
    pub rabbitmq: RabbitMq,
    grpc_port: ports::Lease,
    admin_port: ports::Lease,
    // After the servers: they are gone when somebody else can have the folder.
    folder: DataFolder,
}

/// Why a session did not come up.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The machine lacks something.
    #[error("{}", lines(.0))]
    Machine(Vec<Error>),
    /// A private server, or the folder.
    #[error(transparent)]
    Server(#[from] Error),
    /// The session's own databases.
    #[error("cannot prepare the session's databases: {0}")]
    Database(#[from] sqlx::Error),
}

fn lines(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  and ")
}

/// Is everything there that a session needs of this machine? Asked before anything is started or made.
///
/// # Errors
/// Everything that is missing, each with where it was looked for and its package.
pub fn preflight() -> Result<(), SessionError> {
    let missing: Vec<Error> =
        [postgres::preflight(), rabbitmq::preflight()].into_iter().filter_map(Result::err).collect();
    if missing.is_empty() { Ok(()) } else { Err(SessionError::Machine(missing)) }
}

impl Session {
    /// Starts both servers side by side in the folder and makes the databases that are not there yet. Dropped half-way it leaves
    /// nothing running.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn start(folder: DataFolder) -> Result<Self, SessionError> {
        let wishes = folder.ports();
        let wish = |name: &str| wishes.get(name)?.as_integer().and_then(|port| u16::try_from(port).ok());
        let mut database = postgres::Options::new(folder.path().join("postgres"));
        database.wish = wish("postgres");
        let mut broker = rabbitmq::Options::new(folder.path().join("rabbitmq"));
        broker.wishes = ["amqp", "distribution", "mapper"].map(wish);
        // Both to the end, also if one fails: a start that is broken off is a kill.
        let (postgres, rabbitmq) = tokio::join!(Postgres::start(database), RabbitMq::start(broker));
        let (postgres, rabbitmq) = (postgres?, rabbitmq?);
        let grpc_port = ports::Lease::rather(wish("grpc"))?;
        let admin_port = ports::Lease::rather(wish("admin"))?;
        let [amqp, distribution, mapper] = rabbitmq.ports();
        folder.remember_ports(&[
            ("postgres", postgres.port()),
            ("amqp", amqp),
            ("distribution", distribution),
            ("mapper", mapper),
            ("grpc", grpc_port.port()),
            ("admin", admin_port.port()),
        ])?;
        let session = Self { postgres, rabbitmq, grpc_port, admin_port, folder };
        session.make_databases().await?;
        Ok(session)
    }

    async fn make_databases(&self) -> Result<(), sqlx::Error> {
        let mut admin = PgConnection::connect(&self.postgres.url("postgres")).await?;
        for name in SERVICES.iter().chain([&CONTROL]) {
            let there: bool =
                sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
                    .bind(name)
                    .fetch_one(&mut admin)
                    .await?;
            if !there {
                // Our own three words; a database's name cannot be a parameter.
                admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
            }
        }
        admin.close().await
    }

    /// Where its data are.
    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// The database of one of the services.
    pub fn database_url(&self, service: &str) -> String {
        self.postgres.url(service)
    }

    /// The control database.
    pub fn control_url(&self) -> String {
        self.postgres.url(CONTROL)
    }

    /// The broker.
    pub fn amqp_url(&self) -> String {
        self.rabbitmq.amqp_url(VHOST)
    }

    /// A configuration of a server for this session.
    pub fn config(&self) -> String {
        let services: String = SERVICES
            .iter()
            .map(|name| format!("[services.{name}]\ndatabase_url = \"{}\"\n", self.database_url(name)))
            .collect();
        format!(
            "# Written by `holdfast dev` at each start.
\
             listen = \"127.0.0.1:{}\"
admin_listen = \"127.0.0.1:{}\"
\
             [control]\ndatabase_url = \"{}\"\n\
             [broker]\nurl = \"{}\"\n{services}",
            self.grpc_port.port(),
            self.admin_port.port(),
            self.control_url(),
            self.amqp_url(),
        )
    }

    /// Stops both servers cleanly.
    ///
    /// # Errors
    /// One of them did not stop; it is killed when the session is dropped.
    pub async fn stop(mut self) -> Result<(), Error> {
        let (postgres, rabbitmq) = tokio::join!(self.postgres.stop(), self.rabbitmq.stop());
        postgres.and(rabbitmq)
    }
}

/// Where a session's data are kept unless told otherwise: `$XDG_DATA_HOME/holdfast-dev`, or the same under
/// `~/.local/share`. As root, whose home folder the servers' accounts may not enter, under `/var/lib`.
pub fn default_data_folder() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = if nix::unistd::geteuid().is_root() {
        Some(PathBuf::from("/var/lib"))
    } else {
        std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home)
    };
    base.unwrap_or_else(std::env::temp_dir).join("holdfast-dev")
}
