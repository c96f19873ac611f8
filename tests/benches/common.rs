//! What the benches share: figures with their spread, sizes from the environment, a PostgreSQL that flushes, waiting.

use std::time::{Duration, Instant};

use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{folder, server::ServerInProcess, services::PostgresAt};
use tempfile::TempDir;

/// A size that the environment may change.
pub(super) fn from_env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Rounds after the warm-up: at least five for a median that means something.
pub(super) fn rounds(default: usize) -> usize {
    from_env("HOLDFAST_BENCH_ROUNDS", default)
}

/// 1 KiB of JSON, as all events here carry.
pub(super) fn data() -> String {
    format!("{{\"payload\":\"{}\"}}", "x".repeat(1_000))
}

/// One figure over the rounds.
#[derive(Debug, Default, Clone)]
pub(super) struct Figures(Vec<f64>);

impl Figures {
    /// Round 0 is the warm-up and does not count.
    pub(super) fn add(&mut self, round: usize, value: f64) {
        if round > 0 {
            self.0.push(value);
        }
    }

    /// Its median.
    pub(super) fn median(&self) -> f64 {
        at(&self.0, 0.5)
    }

    /// The line of the result.
    pub(super) fn say(&self, what: &str) {
        println!(
            "{what}: {:.3} (min {:.3}, max {:.3}; {} rounds)",
            self.median(),
            at(&self.0, 0.0),
            at(&self.0, 1.0),
            self.0.len()
        );
    }
}

/// The value at a share of the sorted values.
pub(super) fn at(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Waits, with a limit no working bench comes near.
pub(super) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(300);
    while !so() {
        assert!(Instant::now() < limit, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a server has reached its broker.
pub(super) async fn connected(server: &ServerInProcess) {
    until("the server to reach the broker", || server.metric("holdfast_broker_connected", "") > 0.5).await;
}

/// A PostgreSQL of the bench's own that flushes each commit, as the tests' does not, and does nothing by itself in between: no
/// checkpoint writes whole pages, no vacuum writes at all.
pub(super) struct Flushing {
    pub(super) at: PostgresAt,
    _server: Postgres,
    _folder: TempDir,
}

impl Flushing {
    pub(super) async fn start() -> Self {
        let folder = folder::scratch();
        let options = postgres::Options::new(folder.path())
            .setting("max_connections = 200")
            .setting("shared_buffers = 256MB")
            .setting("max_wal_size = 8GB")
            .setting("checkpoint_timeout = 1h")
            .setting("autovacuum = off");
        let server = Postgres::start(options).await.unwrap();
        Self { at: PostgresAt { port: server.port() }, _server: server, _folder: folder }
    }
}
