//! What people do first, done: the client library, `grpcurl` and Python as further real clients, and `holdfast dev`.
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

mod client;
mod dev;
mod grpcurl;
mod python;
mod python_consumer;
