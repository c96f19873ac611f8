//! The guides of `docs`, held to what they say: their commands are run, the tests that they name exist.

mod consumers;
mod guarantees;
