//! The end-to-end tests, one binary; `./x test` runs it with the servers it needs.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets something unexpected fails"
)]

mod harness;
