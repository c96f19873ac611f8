//! The kill matrix (design, section 15, invariants 1 to 4): every party, killed at every step of an event's way.
//!
//! | step | caller | server | PostgreSQL | RabbitMQ |
//! | --- | --- | --- | --- | --- |
//! | while its rows are staged, while the stage commits | [`caller`] | [`server`] | [`postgres`] | (not needed) |
//! | staged, the caller's transaction open | [`caller`] | [`server`] | [`postgres`] | [`broker`] |
//! | while the caller commits | [`caller`] | [`server`] | [`postgres`] | (not needed) |
//! | committed, not claimed; while it is claimed | [`caller`] | [`server`] | [`postgres`] | [`broker`] |
//! | claimed, not published; published, not confirmed | [`caller`] | [`server`] | [`postgres`] | [`broker`] |
//! | confirmed, not stamped; while it is stamped | [`caller`] | [`server`] | [`postgres`] | [`broker`] |
//! | anywhere, under load | – | [`load_server`], [`replicas`] | [`load_postgres`] | [`broker`] |
//!
//! How a step is reached and kept: [`steps`]. Each test ends with every committed event delivered, none of a
//! transaction that did not commit, first deliveries of a key in order, and the outbox reconciled (invariant 2).
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

mod gate;
mod load;
mod stand;
mod steps;

mod broker;
mod caller;
mod load_postgres;
mod load_server;
mod postgres;
mod replicas;
mod server;
