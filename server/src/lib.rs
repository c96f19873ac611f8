//! (skeleton)

pub mod dev;
