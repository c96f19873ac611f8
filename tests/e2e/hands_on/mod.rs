//! What people type, typed: `grpcurl` as the second real client, and `holdfast dev`.
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

mod dev;
mod grpcurl;
