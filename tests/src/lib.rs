//! The end-to-end harness: real PostgreSQL, real RabbitMQ, the real binary, and ways to break each of them.
//!
//! Run by cargo-nextest (one process per test) below `with-services`, which starts the two servers that all
//! tests of a run share. Tests that break a server start a private one.
//!
//! Guarantees: each test has its own databases and its own vhost and removes them; a WARN or ERROR line that the
//! test did not announce fails it; every wait is for a fact, with a deadline, and says what it last saw.
//!
//! Not here: the tests themselves (`tests/e2e/`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness that meets something unexpected fails the test that uses it, at once and loudly"
)]

pub mod auth;
pub mod broker;
pub mod caller;
pub mod chaos;
pub mod client;
pub mod consumer;
pub mod database;
pub mod folder;
pub mod health;
pub mod holds;
pub mod http;
pub mod inbox;
pub mod logs;
pub mod operator;
pub mod pgbouncer;
pub mod plans;
pub mod process;
mod reaper;
pub mod reconcile;
pub mod replay;
pub mod runbook;
pub mod scene;
pub mod server;
pub mod services;
pub mod soak;
pub mod terminal;
pub mod tls;
pub mod vhost;
pub mod wait;

mod template;

/// Runs the last deed of a value that is being dropped to its end, from wherever it is dropped: a thread and a
/// runtime of its own, because the test's runtime may be busy unwinding or gone.
fn afterwards(deed: impl Future<Output = ()> + Send + 'static) {
    let run = move || {
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            let _ = runtime.block_on(async { tokio::time::timeout(wait::LONG, deed).await });
        }
    };
    let _ = std::thread::spawn(run).join();
}
