//! Private servers: a PostgreSQL and a RabbitMQ of one's own, started from the machine's binaries.
//!
//! Used by `holdfast dev` and by the end-to-end tests (DESIGN section 13). Linux only: process trees are read
//! from `/proc`.
//!
//! Guarantees:
//! - Nothing is shared with servers that already run here: own folder, own free ports below the ephemeral
//!   range, for RabbitMQ also own node name, cookie and port mapper. Everything listens on 127.0.0.1 only.
//! - As root the servers run under their system accounts (`postgres`, `rabbitmq`), else as the caller.
//! - Nothing outlives its owner: not a dropped value, not a panic, and not a SIGKILL of the owning process
//!   (see `supervised`).
//! - A session's data folder is one session's at a time. What an earlier one left running in it (it and its supervisors were
//!   killed) is known by the folder and ended; ports are the earlier one's as long as they are free.
//! - A server that does not come up is an error that holds its last log lines; a missing program is an error
//!   that says how to install it.
//!
//! Not guaranteed: security (trust authentication, guest/guest) and anything about data worth keeping.

mod account;
mod error;
pub mod folder;
mod orphans;
pub mod ports;
pub mod postgres;
mod process;
pub mod rabbitmq;
pub mod session;
mod supervised;

pub use error::Error;
pub use folder::DataFolder;
pub use postgres::Postgres;
pub use rabbitmq::RabbitMq;
pub use session::Session;
