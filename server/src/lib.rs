//! Holdfast's server. `main.rs` and [`app`] wire it; `ARCHITECTURE.md` is the map, `tests/layering.rs` holds the levels.

pub mod admin_http;
pub mod app;
pub mod audit;
pub mod auth;
pub mod backoff;
pub mod broker;
pub mod check;
pub mod commands;
pub mod config;
pub mod db;
pub mod demo;
pub mod dev;
pub mod grpc;
pub mod health;
pub mod inbox;
pub mod jobs;
pub mod logging;
pub mod lookup;
pub mod metrics;
pub mod outbox;
pub mod retention;
pub mod roster;
pub mod schema;
pub mod tickets;
