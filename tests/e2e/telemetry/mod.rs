//! What the outside sees of a server: health, the admin port, metrics, request ids, the control service; and what it must
//! never see (design, sections 13 and 14).
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

mod control;
mod health;
mod metrics;
mod probe;
mod requests;
mod secrets;
