//! The outbox: the heart. Events bound to a caller's own transaction, delivered exactly when that transaction commits.
//!
//! Guarantees (design, section 15): 1. what committed is not lost and what rolled back is not delivered; 2. each row is in
//! one state, and staged = rows + discarded + pruned; 3. a row is stamped published only after the broker confirmed and
//! routed it; 4. events of one key leave in the order of staging, one in flight at a time.
//! Does not: deliver exactly once; after a crash between confirm and stamp an event is sent again.
//!
//! ```text
//!   StageInTx                     caller's COMMIT, seen by the resolver or the pass
//!  ───────────▶ unresolved ───────────(held: see [`holds`])───▶ fresh ◀───────────────┐
//!                   │ caller's ROLLBACK                      │ pass               │ its front ended,
//!                   ▼                                        ├──▶ set aside ──────┤ or its wait is over
//!               discarded (counted)                          ▼    (a follower)    │
//!                                     give-back, lost ── in flight ── failed ──▶ backing off
//!                                        (fresh again)       │  │                (no queue: one a type has a time)
//!                              confirmed and not returned    ▼  └─ no broker could carry it, or five lone claims
//!                                                        published          ended without an outcome ──▶ parked
//! ```
//! Only *fresh* rows and back-offs that are due lie in the claim's path. A pass, under the service's advisory lock, takes
//! them by `seq`: those it may send now it claims; those that wait behind an earlier row of their key it sets aside
//! (`admitted_at`), out of the path, until that row ends and gives them back. Out of it, too, are rows that are claimed alone
//! (their claims ended twice without an outcome) and *parked* ones: no broker could carry them, or they kept killing their
//! publishers. Published rows are kept for a time, and then retention takes them away ([`prune`]), counted. Design, section 4;
//! `docs/decisions.md`.

pub mod announced;
pub mod depth;
pub mod drain;
pub mod holds;
pub mod operator;
pub mod parked;
pub mod pause;
pub mod pending;
pub mod prune;
pub mod replay;
mod resolvable;
mod sql;
pub mod stage;
pub mod unresolved;

pub use resolvable::{Looks, OutboxRows};
pub use sql::QUERIES;
