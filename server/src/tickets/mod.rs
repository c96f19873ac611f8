//! Tickets: the name of one live database transaction, and how it ended.
//!
//! A ticket is a random nonce, a lock and a row (`holdfast.stage_ticket()` makes all three). While somebody holds the
//! nonce's advisory lock the transaction is open. Once the lock is free, the row, looked for **in a later statement**,
//! tells: visible = committed, not visible = rolled back (or its savepoint was, or it died). PostgreSQL makes a commit
//! visible before it releases locks, so the verdict is exact; no transaction id is compared and no time-out decides.
//!
//! Guarantees: [`ask`] is exact and does not age; [`Resolver`] writes the verdict soon for every row of every registered
//! [`Resolvable`]; a ticket's row is deleted only when nothing can need it any more. Does not: know the tables whose rows
//! it resolves. Design, section 3.
//!
//! ```text
//!             lock held            lock free, row visible
//!   taken ──▶ open ──────────────▶ committed ──┐ free for 2 min, no row names it
//!               │ lock free, no row            ├──▶ swept
//!               └────────────────▶ rolled back ┘ (has no row)
//! ```

pub mod holders;
mod open;
mod resolver;
mod sql;
mod sweep;

use futures::future::BoxFuture;

use crate::db;

pub use resolver::{Hints, Options, Report, Resolver};
pub use sql::QUERIES;

/// At most so many free tickets are asked in one transaction: each probe of a free one leaves a shared lock until its
/// end, and the server's lock table is sized for 64 a connection.
pub const MAX_FREE_PER_TX: usize = 256;

/// How the tickets asked about stand.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdicts {
    /// Open, or prepared: wait.
    pub open: Vec<i64>,
    /// Committed: their rows are deliverable.
    pub committed: Vec<i64>,
    /// Rolled back: their rows go.
    pub rolled_back: Vec<i64>,
}

impl Verdicts {
    /// Whether none of the tickets is decided.
    pub fn none_decided(&self) -> bool {
        self.committed.is_empty() && self.rolled_back.is_empty()
    }
}

/// What a table's owner did with verdicts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Rows stamped as committed.
    pub kept: u64,
    /// Rows discarded with their transaction.
    pub discarded: u64,
    /// There may be more rows of these tickets.
    pub more: bool,
}

/// A table with rows that are bound to tickets. Its owner registers it with the [`Resolver`] in the wiring.
pub trait Resolvable: Send + Sync {
    /// Distinct tickets above `after` that undecided rows name, ascending, at most `limit`.
    fn undecided<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        after: Option<i64>,
        limit: i64,
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>>;

    /// Writes the verdicts, in the transaction that asked. May skip rows that another transaction is busy with, and may do
    /// them in pieces.
    fn apply<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        verdicts: &'a Verdicts,
    ) -> BoxFuture<'a, Result<Applied, db::Error>>;

    /// Those of `tickets` that an undecided row still names.
    fn naming<'a>(
        &'a self,
        conn: &'a mut db::Conn,
        tickets: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>>;
}

/// Asks the database how `tickets` stand. Runs two statements, and must run inside one READ COMMITTED transaction: the
/// second one's snapshot is younger than the moment at which the first found the lock free.
///
/// # Errors
/// The database's.
pub async fn ask(conn: &mut db::Conn, tickets: &[i64]) -> Result<Verdicts, db::Error> {
    if tickets.is_empty() {
        return Ok(Verdicts::default());
    }
    let free = sql::free(conn, tickets).await?;
    let open = tickets.iter().copied().filter(|t| !free.contains(t)).collect();
    let mut verdicts = judge_free(conn, &free).await?;
    verdicts.open = open;
    Ok(verdicts)
}

/// What [`ask`] asks, as statements that can be sent along with a BEGIN.
pub fn questions(tickets: &[i64]) -> Vec<String> {
    if tickets.is_empty() { Vec::new() } else { sql::questions(tickets).to_vec() }
}

/// The verdicts that [`questions`] were answered with.
///
/// # Errors
/// The answers are not those of these questions.
pub fn verdicts(tickets: &[i64], answers: &[db::Answer]) -> Result<Verdicts, db::Error> {
    let [free, there] = answers else { return Ok(Verdicts::default()) };
    let (free, there) = (sql::answer(free)?, sql::answer(there)?);
    let open = tickets.iter().copied().filter(|t| !free.contains(t)).collect();
    let (committed, rolled_back) = free.into_iter().partition(|t| there.contains(t));
    Ok(Verdicts { open, committed, rolled_back })
}

/// The second half of [`ask`], for tickets whose locks an earlier statement of this transaction found free.
///
/// # Errors
/// The database's.
pub async fn judge_free(conn: &mut db::Conn, free: &[i64]) -> Result<Verdicts, db::Error> {
    if free.is_empty() {
        return Ok(Verdicts::default());
    }
    let committed = sql::committed(conn, free).await?;
    let rolled_back = free.iter().copied().filter(|t| !committed.contains(t)).collect();
    Ok(Verdicts { open: Vec::new(), committed, rolled_back })
}
