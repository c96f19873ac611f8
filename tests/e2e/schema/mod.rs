//! The drift gate and the roster (design, section 11).

mod drift;
mod golden;
mod next;
mod roster;
mod serving;

use std::time::Duration;

use holdfast_server::db::{Options, Pool};

/// A pool of its own to a test's database.
fn pool(url: &str) -> Pool {
    Pool::new(&Options {
        url: url.to_owned(),
        max_connections: 2,
        prepared_statements: true,
        acquire_timeout: Duration::from_secs(5),
    })
    .unwrap()
}
