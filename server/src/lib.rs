//! Holdfast's server. `main.rs` and [`app`] wire it; `ARCHITECTURE.md` is the map, `tests/layering.rs` holds the levels.

/// The control database's own outbox, drained like any service's; callers cannot stage for it.
pub const BUILT_IN_SERVICE: &str = "holdfast-control";

pub mod app;
pub mod backoff;
pub mod broker;
pub mod config;
pub mod db;
pub mod demo;
pub mod dev;
pub mod grpc;
pub mod logging;
pub mod lookup;
pub mod metrics;
pub mod outbox;
pub mod tickets;
