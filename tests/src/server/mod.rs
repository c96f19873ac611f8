//! A Holdfast server under test: in this process, or the real binary in one of its own.
//!
//! Use the first by default (its log and its panics are the test's), the second where the process itself matters:
//! kill -9, SIGTERM, SIGSTOP, exit codes, the command line.

mod config;
mod in_process;
mod process;

pub use config::{EXCHANGE, ServerConfig};
pub use in_process::ServerInProcess;
pub use process::{ServerProcess, Sink, binary};
