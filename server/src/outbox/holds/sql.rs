//! The statements about holds, and all that names `holdfast.hold_watch`. One function a file of `queries/`.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::Row as _;
use time::OffsetDateTime;

use super::super::sql::{PAIR_LOCK_CLASS, tally_slot, try_watch_lock};
use super::{Held, Outcome, PATIENCE, Pair};
use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    LOCK = "lock",
    SHARE = "share",
    DECIDE = "decide",
    OUTCOME = "outcome",
    RELEASE = "release",
    DROP = "drop",
    LIST = "list",
    LOOK = "look",
    WARNED = "warned",
    LEFT_BEHIND = "left_behind",
    PRUNE = "prune",
}

/// How long a decision waits for one row, as every durable transaction; the whole is tried again for [`PATIENCE`].
const ROW_PATIENCE: &str = "500ms";

/// Takes the pair's lock exclusively, or fails as contended.
pub(super) async fn lock(conn: &mut db::Conn, pair: &Pair) -> Result<(), db::Error> {
    sqlx::query(LOCK)
        .bind(PAIR_LOCK_CLASS)
        .bind(pair.key())
        .bind(format!("{}ms", PATIENCE.as_millis()))
        .bind(ROW_PATIENCE)
        .execute(conn)
        .await?;
    Ok(())
}

/// Tries the pairs' locks, shared, as a question that can be sent along with a BEGIN.
pub(super) fn share_question(keys: &[i32]) -> String {
    let list = keys.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    SHARE
        .replace("$1::integer", &format!("{PAIR_LOCK_CLASS}::integer"))
        .replace("$2::integer[]", &format!("'{{{list}}}'::integer[]"))
}

/// The keys that [`share_question`] could not get.
pub(super) fn contended(answers: &[db::Answer]) -> Result<HashSet<i32>, db::Error> {
    answers.iter().flatten().map(|row| row.try_get(0).map_err(db::Error::from)).collect()
}

/// A word of the table; its CHECK lets no other in.
fn parsed(word: &str) -> Result<Outcome, db::Error> {
    Outcome::parse(word)
        .ok_or_else(|| db::Error::from(sqlx::Error::Decode("an outcome of no meaning".into())))
}

/// Writes the tombstone, or finds the one that is there; tells which it is and whether it was there. `None`: somebody wrote one
/// past the lock at this moment.
pub(super) async fn decide(
    conn: &mut db::Conn,
    pair: &Pair,
    outcome: Outcome,
) -> Result<Option<(Outcome, bool)>, db::Error> {
    let decided: Option<(String, bool)> = sqlx::query_as(DECIDE)
        .bind(&pair.operation_id)
        .bind(pair.generation)
        .bind(outcome.as_str())
        .fetch_optional(conn)
        .await?;
    decided.map(|(word, before)| Ok((parsed(&word)?, before))).transpose()
}

/// How the pair was decided, if it was. Only with its lock.
pub(in crate::outbox) async fn outcome(
    conn: &mut db::Conn,
    pair: &Pair,
) -> Result<Option<Outcome>, db::Error> {
    let word: Option<String> = sqlx::query_scalar(OUTCOME)
        .bind(&pair.operation_id)
        .bind(pair.generation)
        .fetch_optional(conn)
        .await?;
    word.map(|word| parsed(&word)).transpose()
}

/// What was done to a slice of a pair's rows.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Slice {
    found: i64,
    acted: i64,
    #[sqlx(skip)]
    asked: i64,
}

impl Slice {
    /// Rows that it was done to.
    pub(super) fn acted(&self) -> u64 {
        self.acted.unsigned_abs()
    }

    /// Whether there were no more.
    pub(super) fn is_last(&self) -> bool {
        self.found < self.asked
    }
}

/// Releases or drops the next `limit` rows of a decided pair.
pub(super) async fn slice(
    conn: &mut db::Conn,
    pair: &Pair,
    outcome: Outcome,
    limit: i64,
) -> Result<Slice, db::Error> {
    let query = match outcome {
        Outcome::Released => {
            sqlx::query_as(RELEASE).bind(&pair.operation_id).bind(pair.generation).bind(limit)
        }
        Outcome::Dropped => {
            sqlx::query_as(DROP).bind(&pair.operation_id).bind(pair.generation).bind(limit).bind(tally_slot())
        }
    };
    let slice: Slice = query.fetch_one(conn).await?;
    Ok(Slice { asked: limit, ..slice })
}

#[derive(sqlx::FromRow)]
struct Listed {
    operation_id: String,
    generation: i64,
    held: i64,
    unresolved: i64,
    oldest: Option<OffsetDateTime>,
    outcome: Option<String>,
}

pub(super) async fn list(
    conn: &mut db::Conn,
    operation_id: Option<&str>,
    after: Option<&Pair>,
    limit: usize,
) -> Result<Vec<Held>, db::Error> {
    // Behind everything that is smaller; no pair of ours has this generation.
    let (behind, generation) = match (after, operation_id) {
        (Some(after), _) => (after.operation_id.as_str(), after.generation),
        (None, first) => (first.unwrap_or_default(), i64::MIN),
    };
    let rows: Vec<Listed> = sqlx::query_as(LIST)
        .bind(behind)
        .bind(generation)
        .bind(operation_id)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await?;
    let held = rows.into_iter().map(|row| {
        Ok(Held {
            pair: Pair { operation_id: row.operation_id, generation: row.generation },
            held: row.held,
            unresolved: row.unresolved,
            oldest: row.oldest,
            outcome: row.outcome.as_deref().map(parsed).transpose()?,
        })
    });
    held.collect()
}

/// What the watch sees.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Seen {
    /// Rows held.
    pub rows: i64,
    /// The oldest one's operation.
    pub operation_id: Option<String>,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its age in seconds.
    pub age: i64,
}

pub(super) async fn look(conn: &mut db::Conn) -> Result<Seen, db::Error> {
    Ok(sqlx::query_as(LOOK).fetch_one(conn).await?)
}

/// Whether this is the replica that acts.
pub(super) async fn watch_lock(conn: &mut db::Conn) -> Result<bool, db::Error> {
    try_watch_lock(conn).await
}

/// Whether this pair is to be warned of now.
pub(super) async fn warned(
    conn: &mut db::Conn,
    operation_id: &str,
    generation: i64,
    again_seconds: f64,
) -> Result<bool, db::Error> {
    let now: Option<bool> = sqlx::query_scalar(WARNED)
        .bind(operation_id)
        .bind(generation)
        .bind(again_seconds)
        .fetch_optional(conn)
        .await?;
    Ok(now.is_some())
}

/// A page of the walk over pairs.
#[derive(Debug)]
pub(super) struct Behind {
    /// Decided pairs that have rows.
    pub pairs: Vec<(Pair, Outcome)>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Pair>,
}

pub(super) async fn left_behind(
    conn: &mut db::Conn,
    after: Option<&Pair>,
    page: i64,
    grace_seconds: f64,
) -> Result<Behind, db::Error> {
    let rows: Vec<(String, i64, Option<String>, bool)> = sqlx::query_as(LEFT_BEHIND)
        .bind(after.map_or("", |pair| pair.operation_id.as_str()))
        .bind(after.map_or(i64::MIN, |pair| pair.generation))
        .bind(page)
        .bind(grace_seconds)
        .fetch_all(conn)
        .await?;
    let mut behind = Behind { pairs: Vec::new(), next: None };
    for (operation_id, generation, outcome, last) in rows {
        let pair = Pair { operation_id, generation };
        if last {
            behind.next = Some(pair.clone());
        }
        if let Some(word) = outcome {
            behind.pairs.push((pair, parsed(&word)?));
        }
    }
    Ok(behind)
}

/// See [`crate::outbox::prune::decisions`].
pub(in crate::outbox) async fn prune(
    conn: &mut db::Conn,
    kept: Duration,
    limit: i64,
) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(PRUNE).bind(kept.as_secs_f64()).bind(limit).fetch_one(conn).await?;
    Ok(gone.unsigned_abs())
}
