//! `holdfast admin`, as an terminal types it.

mod answers;
mod reading;
