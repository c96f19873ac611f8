//! Writes down how claimed rows ended: stamps, failures, parkings and give-backs, in one transaction.
//!
//! Rows of a key end under the service's lock, taken before any row lock and polled for at most a second (a lock time-out
//! would abort the stamp itself). With it, the followers of the fronts that ended are given back in a later statement.
//! Without it the outcome goes through all the same and the front stays on the list of ended ones for the next pass. Rows
//! without a key have no followers and need no lock. A row that a stranger has locked waits; its neighbours do not.

use std::collections::{BTreeSet, HashSet};

use uuid::Uuid;

use super::super::sql;
use super::Shared;
use super::flight::{Done, End};
use super::parking::{self, Cause};
use super::pass::PROMOTE_PER_KEY;
use crate::db::{self, Begin, Tx};

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Whether nothing was left for a pass to look at: the service's lock was held, or not needed.
    pub locked: bool,
    /// Types and lags in seconds of what was stamped.
    published: Vec<(String, Option<f64>)>,
    pub given_back: u64,
    pub promoted: u64,
    /// Rows that need not wait for a queue any more.
    pub released: u64,
    pub stale: u64,
    /// Rows that somebody else has locked: still to be settled.
    pub skipped: HashSet<Uuid>,
    parked: Vec<sql::Parking>,
    /// The first try: what is missing was not written by an earlier one.
    first: bool,
}

/// Rows of a type that are due at once when one of it was routed; their successes release the next.
const RELEASED_PER_TYPE: i64 = 1_000;

/// What a settle is asked to do besides.
#[derive(Debug)]
pub(super) struct Order {
    /// This is the first try; on a later one the rows may have been settled by a try whose commit was not answered, which is
    /// not a stale stamp.
    pub first: bool,
    /// Claimed batches whose last rows these are.
    pub ending: Vec<i64>,
}

/// Settles `batch` in one transaction.
pub(super) async fn run(shared: &Shared, batch: &[Done], order: &Order) -> Result<Report, db::Error> {
    let keyed = batch.iter().any(|done| done.keyed);
    let _turn = if keyed { Some(shared.turn.lock().await) } else { None };
    let report = db::within(shared.options.limit, async {
        let question = if keyed { vec![sql::drain_lock_question()] } else { Vec::new() };
        let (mut tx, answers) = shared.pool.begin_asking(Begin::Durable, &question).await?;
        match work(&mut tx, shared, batch, keyed, order.first, &answers).await {
            Ok(report) => {
                let ended = ended(batch, order, &report);
                if ended.is_empty() {
                    tx.commit().await?
                } else {
                    tx.commit_after(&sql::close_claims(&ended)).await?
                }
                Ok(report)
            }
            Err(error) => tx.finish(Err(error)).await,
        }
    })
    .await?;
    for (event_type, lag) in &report.published {
        shared.metrics.drain.published(event_type, *lag);
    }
    shared.metrics.drain.given_back.inc_by(report.given_back);
    parking::announce(shared, Cause::Unsendable, &report.parked);
    if order.first {
        shared.metrics.drain.stale_stamps.inc_by(report.stale);
    }
    Ok(report)
}

async fn work(
    tx: &mut Tx,
    shared: &Shared,
    batch: &[Done],
    keyed: bool,
    first: bool,
    answers: &[db::Answer],
) -> Result<Report, db::Error> {
    let locked = !keyed || sql::drain_lock_answer(answers)? || sql::lock_patiently(tx.conn()).await?;
    let mut report = Report { locked, first, ..Report::default() };
    let mut keys: Vec<String> = Vec::new();
    let me = &shared.options.instance;

    let stamps = Rows::of(batch, |end| *end == End::Published);
    if !stamps.ids.is_empty() {
        let stamped = sql::stamp(tx.conn(), &stamps.ids, &stamps.generations, locked).await?;
        let types: BTreeSet<String> = stamped.iter().filter_map(|row| row.waiting.clone()).collect();
        let mut ended = Vec::with_capacity(stamped.len());
        for row in stamped {
            report.published.push((row.event_type, row.lag));
            ended.push(sql::Ended { id: row.id, key: row.key });
        }
        if !types.is_empty() {
            let types: Vec<String> = types.into_iter().collect();
            report.released = sql::release(tx.conn(), &types, RELEASED_PER_TYPE).await?;
        }
        stamps.account(tx, ended, None, &mut report, &mut keys).await?;
    }
    let (failed, failures) = failures(shared, batch);
    if !failed.ids.is_empty() {
        let written = sql::fail(tx.conn(), &failed.ids, &failed.generations, &failures, locked, me).await?;
        failed.account(tx, written, Some(me), &mut report, &mut keys).await?;
    }
    let given = Rows::of(batch, |end| matches!(end, End::GivenBack { .. }));
    if !given.ids.is_empty() {
        let written = sql::give_back(tx.conn(), &given.ids, &given.generations, locked, me).await?;
        report.given_back = written.len() as u64;
        given.account(tx, written, Some(me), &mut report, &mut keys).await?;
    }
    let unsendable = Rows::of(batch, |end| matches!(end, End::Parked { .. }));
    if !unsendable.ids.is_empty() {
        let reasons: Vec<String> = batch.iter().filter_map(|done| done.end.parked()).collect();
        let (ids, generations) = (&unsendable.ids, &unsendable.generations);
        report.parked = sql::park(tx.conn(), ids, generations, &reasons, locked, me).await?;
        let written =
            report.parked.iter().map(|row| sql::Ended { id: row.id, key: row.key.clone() }).collect();
        unsendable.account(tx, written, Some(me), &mut report, &mut keys).await?;
    }
    if locked && !keys.is_empty() {
        report.promoted = sql::promote(tx.conn(), &keys, PROMOTE_PER_KEY, shared.options.blocks()).await?;
    }
    Ok(report)
}

/// The batches whose last rows are written now: of none of them a row was skipped.
fn ended(batch: &[Done], order: &Order, report: &Report) -> Vec<i64> {
    let skipped = |id: &i64| batch.iter().any(|done| done.batch == *id && report.skipped.contains(&done.id));
    order.ending.iter().copied().filter(|id| !skipped(id)).collect()
}

/// Rows that ended alike, column by column.
#[derive(Default)]
struct Rows {
    ids: Vec<Uuid>,
    generations: Vec<i64>,
}

impl Rows {
    fn of(batch: &[Done], which: impl Fn(&End) -> bool) -> Self {
        let (ids, generations) =
            batch.iter().filter(|done| which(&done.end)).map(|done| (done.id, done.generation)).unzip();
        Self { ids, generations }
    }

    /// What was written, and why the rest was not. `claimed_by`: only this one's standing claim could be written.
    async fn account(
        &self,
        tx: &mut Tx,
        written: Vec<sql::Ended>,
        claimed_by: Option<&str>,
        report: &mut Report,
        keys: &mut Vec<String>,
    ) -> Result<(), db::Error> {
        let missing = self.ids.len() - written.len();
        if missing > 0 {
            let done: HashSet<Uuid> = written.iter().map(|row| row.id).collect();
            let (ids, generations): (Vec<_>, Vec<_>) =
                std::iter::zip(&self.ids, &self.generations).filter(|(id, _)| !done.contains(id)).unzip();
            let (claimed, who) = (claimed_by.is_some(), claimed_by.unwrap_or_default());
            let skipped = sql::skipped(tx.conn(), &ids, &generations, claimed, who).await?;
            if claimed && report.first {
                sql::absolve(tx.conn(), &ids, &generations).await?;
            }
            report.stale += (missing - skipped.len()) as u64;
            report.skipped.extend(skipped);
        }
        keys.extend(written.into_iter().filter_map(|row| row.key).filter(|key| !key.is_empty()));
        Ok(())
    }
}

fn failures(shared: &Shared, batch: &[Done]) -> (Rows, sql::Failures) {
    let mut rows = Rows::default();
    let mut failures = sql::Failures::default();
    for done in batch {
        let End::Failed { error, unroutable } = &done.end else { continue };
        let backoff = if *unroutable { shared.options.unroutable_retry } else { shared.options.retry };
        rows.ids.push(done.id);
        rows.generations.push(done.generation);
        failures.errors.push(error.clone());
        failures.delays.push(backoff.after(done.attempts.saturating_add(1)).as_secs_f64());
        failures.unroutable.push(*unroutable);
    }
    (rows, failures)
}
