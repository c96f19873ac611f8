//! Deletes tickets that nothing can need any more, in two steps: found free, then, two minutes later, deleted if no
//! undecided row of any table names them.
//!
//! The age of the row itself says nothing (`taken_at` is old in a long transaction); only the time since the lock was
//! found free counts. It is kept in memory: a restart only starts the wait again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::{MAX_FREE_PER_TX, Options, Resolvable, sql};
use crate::db::{self, Begin, Pool};

#[derive(Debug, Default)]
pub(super) struct Sweeper {
    free_since: HashMap<i64, Instant>,
}

impl Sweeper {
    /// One walk over the tickets. Returns how many were deleted.
    pub(super) async fn run_once(
        &mut self,
        pool: &Pool,
        tables: &[Arc<dyn Resolvable>],
        options: &Options,
    ) -> Result<u64, db::Error> {
        if db::within(options.limit, none(pool)).await? {
            self.free_since.clear();
            return Ok(0);
        }
        let mut after = None;
        let mut seen = HashMap::new();
        loop {
            let (page, free) = db::within(options.limit, self.probe(pool, after)).await?;
            let now = Instant::now();
            seen.extend(page.iter().filter_map(|t| self.free_since.get(t).map(|since| (*t, *since))));
            seen.extend(free.into_iter().map(|t| (t, now)));
            let Some(last) = page.last().copied().filter(|_| page.len() == MAX_FREE_PER_TX) else { break };
            after = Some(last);
        }
        // Tickets that another replica has swept leave the map here.
        self.free_since = seen;
        let ripe: Vec<i64> = self
            .free_since
            .iter()
            .filter(|(_, s)| s.elapsed() >= options.sweep_after)
            .map(|(t, _)| *t)
            .collect();
        let mut swept = 0;
        for chunk in ripe.chunks(MAX_FREE_PER_TX) {
            swept += db::within(options.limit, delete(pool, tables, chunk)).await?;
            for ticket in chunk {
                self.free_since.remove(ticket);
            }
        }
        Ok(swept)
    }

    /// A page of tickets, and those of them that were not known to be free and are.
    async fn probe(&self, pool: &Pool, after: Option<i64>) -> Result<(Vec<i64>, Vec<i64>), db::Error> {
        let mut tx = pool.begin(Begin::Forgettable).await?;
        let work = async {
            let page = sql::all_after(tx.conn(), after, MAX_FREE_PER_TX as i64).await?;
            let unknown: Vec<i64> =
                page.iter().copied().filter(|t| !self.free_since.contains_key(t)).collect();
            let free = sql::free(tx.conn(), &unknown).await?;
            Ok((page, free))
        }
        .await;
        tx.finish(work).await
    }
}

/// An idle service has no tickets, and costs no transaction.
async fn none(pool: &Pool) -> Result<bool, db::Error> {
    let mut read = pool.read().await?;
    let first = sql::all_after(read.conn(), None, 1).await;
    read.finish(first.map(|first| first.is_empty())).await
}

async fn delete(pool: &Pool, tables: &[Arc<dyn Resolvable>], tickets: &[i64]) -> Result<u64, db::Error> {
    let mut tx = pool.begin(Begin::Forgettable).await?;
    let work = async {
        let mut idle = tickets.to_vec();
        for table in tables {
            let named = table.naming(tx.conn(), &idle).await?;
            idle.retain(|t| !named.contains(t));
        }
        if idle.is_empty() { Ok(0) } else { sql::sweep(tx.conn(), &idle).await }
    }
    .await;
    tx.finish(work).await
}
