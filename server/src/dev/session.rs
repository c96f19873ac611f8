//! What `holdfast dev` runs on: a private PostgreSQL and RabbitMQ in a data folder that is kept, and a configuration for
//! a server on top of them, with two services whose databases are made and migrated.

use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{Error, Postgres, RabbitMq, ports, postgres, rabbitmq};

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
}

/// Why a session did not come up.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A private server.
    #[error(transparent)]
    Server(#[from] Error),
    /// The session's own databases.
    #[error("cannot prepare the session's databases: {0}")]
    Database(#[from] sqlx::Error),
}

impl Session {
    /// Starts both servers side by side in `data` and makes the databases that are not there yet.
    ///
    /// # Errors
    /// See [`SessionError`]; a missing program is named together with its package.
    pub async fn start(data: &Path) -> Result<Self, SessionError> {
        let (postgres, rabbitmq) = tokio::join!(
            Postgres::start(postgres::Options::new(data.join("postgres"))),
            RabbitMq::start(rabbitmq::Options::new(data.join("rabbitmq")))
        );
        let session = Self { postgres: postgres?, rabbitmq: rabbitmq?, grpc_port: ports::Lease::any()? };
        let mut admin = PgConnection::connect(&session.postgres.url("postgres")).await?;
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
        admin.close().await?;
        Ok(session)
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
            "listen = \"127.0.0.1:{}\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [control]\ndatabase_url = \"{}\"\n\
             [broker]\nurl = \"{}\"\n{services}",
            self.grpc_port.port(),
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
