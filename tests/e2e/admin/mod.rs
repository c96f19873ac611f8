//! `holdfast admin`, as an terminal types it.

mod acting;
mod answers;
mod reading;
