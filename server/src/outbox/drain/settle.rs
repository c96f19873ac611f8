//! Writes down how claimed rows ended: stamps, failures and give-backs, in one transaction.
//!
//! Takes the service's lock before any row lock, polling for at most a second (a lock time-out would abort the stamp
//! itself). With it, the followers of the fronts that ended are given back in a later statement. Without it the outcome goes
//! through all the same and the front stays on the list of ended ones for the next pass.

use std::time::Duration;

use tokio::time::Instant;

use super::super::sql;
use super::Shared;
use super::flight::{Done, End};
use super::pass::PROMOTE_PER_KEY;
use crate::db::{self, Begin, Kind, Tx};

/// What was written.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Report {
    /// Whether the service's lock was held.
    pub locked: bool,
    /// Rows settled, stale ones included.
    pub rows: usize,
    pub published: u64,
    pub given_back: u64,
    pub promoted: u64,
    pub stale: u64,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.locked &= other.locked;
        self.rows += other.rows;
        self.published += other.published;
        self.given_back += other.given_back;
        self.promoted += other.promoted;
        self.stale += other.stale;
    }
}

const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Settles `batch`; hands back what is still to be settled. Where somebody has one of the rows locked, each is done again
/// alone, so that only that one waits: its neighbours' leases would run out, and they would be sent twice.
pub(super) async fn all(
    shared: &Shared,
    batch: Vec<Done>,
    first: bool,
) -> (Vec<Done>, Result<Report, db::Error>) {
    match run(shared, &batch, first).await {
        Ok(report) => (Vec::new(), Ok(report)),
        Err(error) if error.kind == Kind::Contended && batch.len() > 1 => {
            let mut total = Report { locked: true, ..Report::default() };
            let mut left = Vec::new();
            let mut batch = batch.into_iter();
            while let Some(done) = batch.next() {
                match run(shared, std::slice::from_ref(&done), first).await {
                    Ok(report) => total.add(report),
                    Err(error) if error.kind == Kind::Contended => left.push(done),
                    Err(_) => {
                        // Another trouble than a lock: it would be the same for each of the rest, and take its time for each.
                        left.push(done);
                        left.extend(batch.by_ref());
                    }
                }
            }
            (left, Ok(total))
        }
        Err(error) => (batch, Err(error)),
    }
}

/// Settles `batch` in one transaction. `first`: this is the first try; on a later one the rows may have been settled by a
/// try whose commit was not answered, which is not a stale stamp.
async fn run(shared: &Shared, batch: &[Done], first: bool) -> Result<Report, db::Error> {
    let _turn = shared.turn.lock().await;
    let report = db::within(shared.options.limit, async {
        let mut tx = shared.pool.begin(Begin::Durable).await?;
        let work = work(&mut tx, shared, batch).await;
        tx.finish(work).await
    })
    .await?;
    shared.metrics.published.inc_by(report.published);
    shared.metrics.given_back.inc_by(report.given_back);
    if first {
        shared.metrics.stale_stamps.inc_by(report.stale);
    }
    Ok(report)
}

async fn work(tx: &mut Tx, shared: &Shared, batch: &[Done]) -> Result<Report, db::Error> {
    let locked = lock_patiently(tx).await?;
    let mut report = Report { locked, rows: batch.len(), ..Report::default() };
    let mut keys: Vec<Option<String>> = Vec::new();

    let (ids, generations) = columns(batch, |end| *end == End::Published);
    if !ids.is_empty() {
        let stamped = sql::stamp(tx.conn(), &ids, &generations, locked).await?;
        report.published = stamped.len() as u64;
        report.stale += (ids.len() - stamped.len()) as u64;
        keys.extend(stamped);
    }
    let failures = failures(shared, batch);
    if !failures.ids.is_empty() {
        let failed = sql::fail(tx.conn(), &failures, locked).await?;
        report.stale += (failures.ids.len() - failed.len()) as u64;
        keys.extend(failed);
    }
    let (ids, generations) = columns(batch, |end| matches!(end, End::GivenBack { .. }));
    if !ids.is_empty() {
        let given = sql::give_back(tx.conn(), &ids, &generations, locked).await?;
        report.given_back = given.len() as u64;
        report.stale += (ids.len() - given.len()) as u64;
        keys.extend(given);
    }
    if locked {
        let keys: Vec<String> = keys.into_iter().flatten().filter(|key| !key.is_empty()).collect();
        report.promoted =
            sql::promote(tx.conn(), &keys, PROMOTE_PER_KEY, shared.options.unroutable_blocks).await?;
    }
    Ok(report)
}

async fn lock_patiently(tx: &mut Tx) -> Result<bool, db::Error> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        if sql::try_drain_lock(tx.conn()).await? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(2..=10))).await;
    }
}

fn columns(batch: &[Done], which: impl Fn(&End) -> bool) -> (Vec<uuid::Uuid>, Vec<i64>) {
    batch.iter().filter(|done| which(&done.end)).map(|done| (done.id, done.generation)).unzip()
}

fn failures(shared: &Shared, batch: &[Done]) -> sql::Failures {
    let mut rows = sql::Failures::default();
    for done in batch {
        let End::Failed { error, unroutable } = &done.end else { continue };
        let backoff = if *unroutable { shared.options.unroutable_retry } else { shared.options.retry };
        rows.ids.push(done.id);
        rows.generations.push(done.generation);
        rows.errors.push(error.clone());
        rows.delays.push(backoff.after(done.attempts.saturating_add(1)).as_secs_f64());
        rows.unroutable.push(*unroutable);
    }
    rows
}
