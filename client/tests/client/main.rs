//! The client library against a scripted peer on real connections.

mod builder;
mod calls;
mod peer;
mod replicas;
mod tls;
mod tokens;

/// What a test answers.
type Outcome = Result<(), Box<dyn std::error::Error>>;
