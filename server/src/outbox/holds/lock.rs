//! The pair's lock from a stage's side: shared, tried and never waited for, in the round trip of the BEGIN and in a statement
//! before the one that reads the tombstone. Held until the stage's transaction ends.
//!
//! Pair locks have a class of their own, beside the one of the drain and the watch: a pair's key is a hash and may be any number.
//! They come before any row lock; a stage never waits for one while it has anything, so nobody waits in a circle.

use std::collections::HashSet;

use super::{Pair, sql};
use crate::db::{self, Begin, Pool, Tx};

/// A transaction that has the locks of some pairs.
pub(crate) struct Shared {
    /// The transaction.
    pub tx: Tx,
    contended: HashSet<i32>,
}

impl Shared {
    /// Whether a decision of this pair is under way: its lock was not to be had.
    pub(crate) fn is_contended(&self, pair: &Pair) -> bool {
        self.contended.contains(&pair.key())
    }

    /// Whether all locks were to be had.
    pub(crate) fn has_all(&self) -> bool {
        self.contended.is_empty()
    }
}

/// Begins a stage's transaction with the pairs' locks, as far as they are to be had.
///
/// # Errors
/// The database's.
pub(crate) async fn begin_sharing<'a>(
    pool: &Pool,
    kind: Begin,
    pairs: impl Iterator<Item = &'a Pair>,
) -> Result<Shared, db::Error> {
    let mut keys: Vec<i32> = pairs.map(Pair::key).collect();
    keys.sort_unstable();
    keys.dedup();
    let (tx, answers) = pool.begin_asking(kind, &[sql::share_question(&keys)]).await?;
    let contended = sql::contended(&answers)?;
    Ok(Shared { tx, contended })
}
