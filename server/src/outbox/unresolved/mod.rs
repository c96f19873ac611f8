//! The transactions that rows wait for, and who has them open: for an operator who asks what blocks.
//!
//! Guarantees: a page costs a page: one index entry a ticket, at most 1,000 of a ticket's rows, and one look at the cluster's
//! locks. Does not: decide anything, or end anybody's transaction. Design, section 3.

mod sql;

use std::time::Duration;

use time::OffsetDateTime;

use crate::db::{self, Pool};
use crate::tickets::holders::{self, Holder};

pub use sql::QUERIES;

/// Most tickets of one page.
pub const MOST: usize = 100;
/// Most time for one call.
const LIMIT: Duration = Duration::from_secs(8);

/// A ticket that rows wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// The ticket.
    pub ticket: i64,
    /// Its rows, at most 1,000.
    pub events: i64,
    /// When the first of these was staged; absent for a time that no calendar has.
    pub oldest: Option<OffsetDateTime>,
    /// Who has it; `None`: nobody any more.
    pub holder: Option<Holder>,
}

/// A page of tickets, the one with the oldest row first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The tickets.
    pub tickets: Vec<Unresolved>,
    /// What to pass as `after` for the next page; `None`: this is the last.
    pub next: Option<i64>,
}

/// Lists tickets above `after`, at most `limit` (1 to [`MOST`]).
///
/// # Errors
/// The database's.
pub async fn list(pool: &Pool, after: Option<i64>, limit: usize) -> Result<Page, db::Error> {
    let limit = limit.clamp(1, MOST);
    db::within(LIMIT, async {
        let mut read = pool.read().await?;
        let found = look(read.conn(), after, limit).await;
        read.finish(found).await
    })
    .await
}

async fn look(conn: &mut db::Conn, after: Option<i64>, limit: usize) -> Result<Page, db::Error> {
    let mut waiting = sql::page(conn, after, limit + 1).await?;
    let more = waiting.len() > limit;
    waiting.truncate(limit);
    let next = waiting.last().map(|last| last.ticket).filter(|_| more);
    let nonces: Vec<i64> = waiting.iter().map(|one| one.ticket).collect();
    let mut holders = holders::of(conn, &nonces).await?;
    let tickets = waiting.into_iter().map(|one| Unresolved {
        ticket: one.ticket,
        events: one.events,
        oldest: one.oldest,
        holder: holders.remove(&one.ticket),
    });
    let mut tickets: Vec<Unresolved> = tickets.collect();
    // Without a time first: whatever it is, it is odd.
    tickets.sort_by_key(|one| one.oldest);
    Ok(Page { tickets, next })
}
