//! Tickets: a random nonce, a lock and a row (design, section 3; pitfalls, "PostgreSQL and sqlx").

use holdfast_server::db::Conn;
use holdfast_tests::{database::Database, logs::Logs};
use sqlx::{AssertSqlSafe, Executor as _};

mod binding;
mod crash;
mod defaults;
mod prepared;
mod replicas;
mod sweep;
mod verdict;

/// The lines that a server may log while its PostgreSQL is away.
pub(crate) fn expect_database_outage(logs: &Logs) {
    logs.expect("resolver cannot reach its database");
    logs.expect("service database cannot be drained");
    logs.expect("outcomes cannot be written");
    // What PostgreSQL says to the test's own sessions.
    logs.expect("terminating connection due to immediate shutdown command");
}

/// A statement of the server's, by file name.
pub(crate) fn query(queries: &[(&str, &'static str)], name: &str) -> &'static str {
    queries.iter().find(|(file, _)| *file == name).unwrap().1
}

/// A connection in a transaction as the server's own are.
pub(crate) async fn like_the_server(database: &Database) -> Conn {
    let mut connection = Conn::from(database.connect().await);
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.unwrap();
    connection
}

/// Ends a connection's transaction, and the connection.
pub(crate) async fn end(connection: impl Into<Conn>, how: &str) {
    let mut connection = connection.into();
    connection.execute(AssertSqlSafe(how.to_owned())).await.unwrap();
}
