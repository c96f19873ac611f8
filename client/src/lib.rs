//! Holdfast's client library for Rust services: events that are delivered if, and only if, your own transaction commits.
#![cfg_attr(feature = "sqlx", doc = include_str!("../README.md"))]
//!
//! Here: the connection ([`Holdfast`]) with its TLS settings and access tokens ([`token`]); staging ([`outbox`]); consuming ([`inbox`]); what the server says of
//! itself ([`Control`]); the
//! generated contract ([`v1`]), for which [`Holdfast::transport`] makes clients; the rules an event must obey
//! ([`envelope`]); which RPC may be sent again ([`rpc`]); and what a call fails with ([`Error`]).
//!
//! Feature `sqlx` (default): what runs in the caller's own transaction. Without it the library knows no database driver.
//! Feature `lapin`: `Consumer`, which consumes a queue with the inbox.
//! Design: sections 1, 2, 3 and 12.
#![deny(missing_docs)]

mod call;
mod connection;
#[cfg(feature = "lapin")]
mod consumer;
mod control;
mod error;
pub mod inbox;
pub mod outbox;
pub mod rpc;
pub mod token;

/// The guide's examples are compiled.
#[cfg(all(doctest, feature = "lapin", feature = "sqlx"))]
#[doc = include_str!("../../docs/consumers.md")]
struct Consumers;

pub use connection::{BuildError, Builder, Holdfast, Transport};
#[cfg(feature = "lapin")]
pub use consumer::{Consumer, ConsumerBuilder, ConsumerError, Handling, Message};
pub use control::Control;
pub use error::Error;
pub use holdfast_proto::{envelope, v1};
pub use tonic::Code;
