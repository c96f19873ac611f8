//! The end-to-end tests, one binary; `./x test` runs it with the servers it needs.
#![expect(clippy::unwrap_used, reason = "a test that meets something unexpected fails")]

mod admin;
mod auth;
mod commands;
mod documents;
mod drain;
mod hands_on;
mod harness;
mod holds;
mod inbox;
mod inbox_consumer;
mod isolation;
mod kill;
mod lookup;
mod model;
mod operator;
mod replay;
mod retention;
mod runbooks;
mod schema;
mod staging;
mod telemetry;
mod tickets;
