//! The soak: six writers, two replicas, two services, and everything that can break breaking at random, for minutes.
//!
//! `./x soak [--minutes N] [--seed N] [--rate N] [--report FILE]` runs it; it is no part of CI. It has a PostgreSQL and a RabbitMQ
//! of its own, because it kills them. At the end everything is healed, and when nothing moves any more the books are closed
//! ([`ledger`]): nothing that committed is lost, nothing that rolled back came, first deliveries of a key came in the order of its
//! commits, and every row is accounted for (design, section 15, invariants 1, 2 and 4).
//!
//! The seed decides what is broken and what the writers do, not how the machine interleaves it: a run cannot be repeated step by
//! step, only its mixture.

pub mod faults;
pub mod ledger;
pub mod recorder;
pub mod report;
pub mod stand;
pub mod writer;
