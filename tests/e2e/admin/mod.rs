//! `holdfast admin`, as an operator types it.

mod answers;
mod reading;
