//! Holdfast's client library for Rust services: events that are delivered if, and only if, your own transaction commits.
#![doc = include_str!("../README.md")]
//!
//! Here: the generated contract ([`v1`]), the rules an event must obey ([`envelope`]), staging ([`outbox`]) and what a
//! call fails with ([`Error`]). Not yet here: TLS and access tokens; build a [`tonic::transport::Channel`] of your own
//! for those and hand it to [`outbox::Outbox::with_channel`]. Design: sections 2 and 3.

mod error;
pub mod outbox;

pub use error::Error;
pub use holdfast_proto::{envelope, v1};
pub use tonic::Code;
