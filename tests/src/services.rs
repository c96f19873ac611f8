//! Where the servers are that all tests of a run share; `with-services` says it through the environment.

use std::env;

/// Port of the shared PostgreSQL on 127.0.0.1.
pub const POSTGRES_PORT: &str = "HOLDFAST_TEST_POSTGRES_PORT";
/// AMQP port of the shared RabbitMQ on 127.0.0.1.
pub const AMQP_PORT: &str = "HOLDFAST_TEST_AMQP_PORT";
/// Port of the shared RabbitMQ's management API.
pub const MANAGEMENT_PORT: &str = "HOLDFAST_TEST_MANAGEMENT_PORT";
/// Folder of the run.
pub const RUN_FOLDER: &str = "HOLDFAST_TEST_RUN_FOLDER";

/// A PostgreSQL server: the shared one or a private one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresAt {
    /// Port on 127.0.0.1, perhaps a proxy's.
    pub port: u16,
}

impl PostgresAt {
    /// The shared one.
    pub fn shared() -> Self {
        Self { port: port(POSTGRES_PORT) }
    }

    /// URL of a database, as superuser.
    pub fn url(self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// A RabbitMQ broker with the management plugin: the shared one or a private one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerAt {
    /// AMQP port on 127.0.0.1, perhaps a proxy's.
    pub port: u16,
    /// Port of its management API.
    pub management_port: u16,
}

impl BrokerAt {
    /// The shared one.
    pub fn shared() -> Self {
        Self { port: port(AMQP_PORT), management_port: port(MANAGEMENT_PORT) }
    }

    /// URL of a vhost whose name needs no escaping.
    pub fn url(self, vhost: &str) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/{vhost}", self.port)
    }
}

/// Each test is a process of its own, else the log rules would blame the wrong test.
pub(crate) fn require_nextest() {
    assert!(
        env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test"),
        "run these tests with `./x test` (cargo-nextest, one process per test), not with `cargo test`"
    );
}

fn port(variable: &str) -> u16 {
    let text = env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: end-to-end tests need the servers of a run; use `./x test`, or \
             `cargo run -p holdfast-tests --bin with-services -- cargo nextest run -p holdfast-tests`"
        )
    });
    text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no port"))
}
