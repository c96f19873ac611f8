//! One pass: everything between taking the service's lock and committing the claim.
//!
//! The order of statements is the guarantee. The lock first; then, in later statements, what is deliverable is *seen* and
//! the undecided rows before it are *asked*; those found decided are written down, or known to the claim where somebody else
//! is busy with them; only then, with a snapshot younger than all of that, the claim. So an event whose transaction was
//! final before a later one of its key was staged is never overtaken, whichever of the two was hinted at.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::envelope::MAX_ENVELOPE_BYTES;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::pause;
use super::super::sql::{self, Claimed};
use super::parking::{self, Cause};
use super::{Shared, lone};
use crate::db::{self, Begin, Kind, Tx};
use crate::tickets::{self, Verdicts};

/// What a pass is asked to do.
#[derive(Debug)]
pub(super) struct Order {
    /// Tickets somebody hinted at, to be decided on the way.
    pub tickets: Vec<i64>,
    /// Most rows to claim.
    pub rows: usize,
    /// Look no further if none of the tickets is decided.
    pub only_tickets: bool,
    /// Heal leases and settle ended fronts first.
    pub housekeeping: bool,
    /// Look for missed promotions.
    pub sweep: bool,
    /// Claim one row of those that must be alone, and no other.
    pub alone: bool,
}

/// A claimed batch.
#[derive(Debug)]
pub(super) struct Batch {
    /// Its entry among the open claims.
    pub id: i64,
    /// In `seq` order.
    pub rows: Vec<Claimed>,
}

/// What a pass did.
#[derive(Debug)]
pub(super) struct Report {
    /// Whether the service's lock was free. If not, nothing was done.
    pub locked: bool,
    /// As ordered.
    pub housekeeping: bool,
    /// As ordered.
    pub sweep: bool,
    /// The sweep did not come to its end.
    pub sweep_again: bool,
    /// What was claimed, if anything was.
    pub batch: Option<Batch>,
    /// When the lease began, at the latest.
    pub started: Instant,
    /// Tickets that need no more hints.
    pub decided: Vec<i64>,
    /// Tickets still open, or not asked.
    pub undecided: Vec<i64>,
    /// There may be more to claim right now.
    pub more: bool,
    /// Whether a row waits to be claimed alone, where that was looked at.
    pub lone_waits: Option<bool>,
    /// The drain is paused: nothing was claimed, and no ticket was asked.
    pub paused: bool,
}

/// Followers given back at once for a key: sent one by one, so a chain much longer than what a lease can send is waste.
pub(super) const PROMOTE_PER_KEY: i64 = 128;
const ENDED_PER_PASS: i64 = 1_000;

/// The idle poll: one autocommitted SELECT.
pub(super) async fn poll(shared: Arc<Shared>) -> Result<bool, db::Error> {
    db::within(Duration::from_secs(10), async {
        let mut read = shared.pool.read().await?;
        let answer = sql::work_waits(read.conn(), shared.options.lease.as_secs_f64(), 0).await;
        let waiting = read.finish(answer).await?;
        shared.paused.set(waiting.pause());
        Ok(waiting.work)
    })
    .await
}

/// Why a pass failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: db::Error,
    /// What it claimed, if its COMMIT may have gone through.
    pub perhaps: Option<Batch>,
}

impl From<db::Error> for Failure {
    fn from(error: db::Error) -> Self {
        Self { error, perhaps: None }
    }
}

/// Runs one pass.
pub(super) async fn run(shared: Arc<Shared>, order: Order) -> Result<Report, Failure> {
    let _turn = shared.turn.lock().await;
    let started = Instant::now();
    // The only row of a claim that failed, if it was one.
    let mut suspect = None;
    let mut claimed = None;
    let done = db::within(shared.options.limit, async {
        // The lock first, then the pause and the tickets: statements of their own, in the BEGIN's round trip.
        let mut questions = vec![sql::drain_lock_question(), pause::question()];
        questions.extend(tickets::questions(&order.tickets));
        let (mut tx, answers) = shared.pool.begin_asking(Begin::Durable, &questions).await?;
        let work = work(&mut tx, &shared, &order, &answers, started, &mut suspect).await;
        match work {
            Ok((mut report, counted)) => {
                claimed = report.batch.take();
                tx.commit().await?;
                report.batch = claimed.take();
                Ok((report, counted))
            }
            Err(error) => tx.finish(Err(error)).await,
        }
    })
    .await;
    let (report, counted) = match done {
        Ok(done) => done,
        Err(error) => {
            if let Some(id) = suspect.filter(|_| refuses_a_row(&error)) {
                db::within(shared.options.limit, parking::suspect(&shared, id, &error)).await?;
            }
            let perhaps = claimed.filter(|_| !error.certainly_not_applied());
            return Err(Failure { error, perhaps });
        }
    };
    shared.metrics.drain.lease_heals.inc_by(counted.healed.len() as u64 + counted.strays);
    parking::announce(&shared, Cause::Crashes, &counted.healed);
    shared.metrics.drain.missed_promotions.inc_by(counted.missed);
    shared.metrics.tickets.discarded("rolled_back", counted.discarded);
    Ok(report)
}

/// Whether a failed pass may be the fault of one of its rows.
pub(super) fn refuses_a_row(error: &db::Error) -> bool {
    error.kind == Kind::Refused
}

/// Facts that count only once the transaction is committed.
#[derive(Debug, Default)]
struct Counted {
    healed: Vec<sql::Parking>,
    strays: u64,
    missed: u64,
    discarded: u64,
}

async fn work(
    tx: &mut Tx,
    shared: &Shared,
    order: &Order,
    answers: &[db::Answer],
    started: Instant,
    suspect: &mut Option<Uuid>,
) -> Result<(Report, Counted), db::Error> {
    let options = &shared.options;
    let mut counted = Counted::default();
    let mut report = Report {
        locked: false,
        housekeeping: order.housekeeping,
        sweep: order.sweep,
        sweep_again: false,
        batch: None,
        started,
        decided: Vec::new(),
        undecided: order.tickets.clone(),
        more: false,
        lone_waits: None,
        paused: false,
    };
    report.locked = sql::drain_lock_answer(answers)?;
    if !report.locked {
        return Ok((report, counted));
    }
    let pause = pause::answer(answers.get(1))?;
    report.paused = pause.is_some();
    shared.paused.set(pause);
    if order.housekeeping {
        let lease = options.lease.as_secs_f64();
        let healed = sql::heal(tx.conn(), lease).await?;
        sql::close_lapsed(tx.conn(), lease).await?;
        let mut keys: Vec<Option<String>> = healed.iter().map(|row| row.key.clone()).collect();
        if order.sweep {
            let strays = sql::heal_strays(tx.conn(), lease).await?;
            counted.strays = strays.len() as u64;
            keys.extend(strays);
        }
        let ended = sql::settle_ended(tx.conn(), ENDED_PER_PASS).await?;
        report.more |= ended.len() as i64 == ENDED_PER_PASS;
        let keys: Vec<String> = keys.into_iter().chain(ended).flatten().collect();
        sql::promote(tx.conn(), &keys, PROMOTE_PER_KEY, options.blocks()).await?;
        counted.healed = healed;
    }
    if order.sweep {
        let keys = sql::stranded(tx.conn(), options.blocks()).await?;
        report.sweep_again = keys.len() >= sql::STRANDED_AT_MOST;
        counted.missed = sql::promote(tx.conn(), &keys, PROMOTE_PER_KEY, options.blocks()).await?;
    }
    if order.sweep {
        sql::probe(tx.conn()).await?;
    }
    if report.paused {
        // Its turn comes when the pause ends; nobody may wait for it until then.
        report.lone_waits = Some(false);
        return Ok((report, counted));
    }
    if order.alone {
        let claimed = lone::claim(tx, shared, suspect).await?;
        report.batch = batch(claimed);
    }
    if order.alone && report.batch.is_none() {
        // A stranger has it locked, or it waits behind another: the poll comes again, spinning would not help.
        report.lone_waits = Some(false);
    } else if order.alone || order.housekeeping {
        report.lone_waits = Some(sql::lone_waits(tx.conn()).await?);
    }
    if order.alone {
        return Ok((report, counted));
    }
    let verdicts = tickets::verdicts(&order.tickets, answers.get(2..).unwrap_or_default())?;
    if order.only_tickets && verdicts.none_decided() {
        report.undecided = verdicts.open;
        return Ok((report, counted));
    }
    claim(tx, shared, order, &verdicts, &mut report, &mut counted, suspect).await?;
    report.decided = [verdicts.committed, verdicts.rolled_back].concat();
    report.undecided = verdicts.open;
    Ok((report, counted))
}

async fn claim(
    tx: &mut Tx,
    shared: &Shared,
    order: &Order,
    verdicts: &Verdicts,
    report: &mut Report,
    counted: &mut Counted,
    suspect: &mut Option<Uuid>,
) -> Result<(), db::Error> {
    let rows = i64::try_from(order.rows).unwrap_or(i64::MAX);
    let max_free = tickets::MAX_FREE_PER_TX as i64;
    let mut candidates = Vec::new();
    let mut free = Vec::new();
    for seen in sql::see(tx.conn(), &verdicts.committed, rows, max_free).await? {
        match (seen.id, seen.seq, seen.free_ticket) {
            (Some(id), Some(seq), _) => candidates.push(Candidate {
                seq,
                id,
                keyed: seen.keyed.unwrap_or(false),
                bytes: real_size(seen.size.unwrap_or(0), seen.compressed.unwrap_or(false)),
            }),
            (_, _, Some(ticket)) => free.push(ticket),
            _ => {}
        }
    }
    report.more |= candidates.len() >= order.rows;
    let earlier = tickets::judge_free(tx.conn(), &free).await?;
    // What somebody else is busy with, and what does not fit into one transaction, is left; the claim knows the tickets.
    let kept = sql::keep(tx.conn(), &earlier.committed).await?;
    counted.discarded += sql::discard_rolled_back(tx.conn(), &earlier.rolled_back).await?;
    counted.discarded += sql::discard_rolled_back(tx.conn(), &verdicts.rolled_back).await?;
    let progress = kept > 0 || counted.discarded > 0;
    report.more |= progress;
    if free.len() >= tickets::MAX_FREE_PER_TX {
        // There may be decided rows before these that were not asked: their keys wait for the next pass.
        candidates.retain(|c| !c.keyed);
        // Without progress somebody has those rows locked; the poll comes again, spinning would not help.
        report.more = progress;
    }
    report.more |= trim(&mut candidates, order.rows, shared.options.batch_bytes);
    if candidates.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = candidates.iter().map(|c| c.id).collect();
    *suspect = if let [only] = ids.as_slice() { Some(*only) } else { None };
    let answered = sql::claim(
        tx.conn(),
        &ids,
        &verdicts.committed,
        &shared.options.instance,
        shared.options.blocks(),
        &earlier.committed,
    )
    .await?;
    *suspect = None;
    if report.more {
        // What did not fit of a ticket's rows is deliverable from now on, not only when the resolver comes by.
        sql::keep(tx.conn(), &verdicts.committed).await?;
    }
    report.batch = batch(answered);
    Ok(())
}

/// What was claimed, if anything was.
fn batch(answered: Vec<Claimed>) -> Option<Batch> {
    let mut rows: Vec<Claimed> = answered.into_iter().filter(|row| row.goes).collect();
    rows.sort_unstable_by_key(|row| row.seq);
    let id = rows.first()?.batch?;
    Some(Batch { id, rows })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    seq: i64,
    id: Uuid,
    keyed: bool,
    bytes: usize,
}

/// How large an envelope may be once it is rendered. The real size of a compressed one is not to be had without rendering it,
/// and rendering hundreds only to leave most of them takes seconds: the compressor's best ratio, or what may be staged.
fn real_size(stored: i32, compressed: bool) -> usize {
    let stored = usize::try_from(stored).unwrap_or(0);
    if compressed { (stored * 100).min(MAX_ENVELOPE_BYTES.max(stored * 4)) } else { stored }
}

/// Keeps a prefix by `seq` within both limits, at least one row; tells whether something was cut. Only a suffix may go:
/// a row must not be taken without the earlier ones of its key.
fn trim(candidates: &mut Vec<Candidate>, rows: usize, bytes: usize) -> bool {
    candidates.sort_unstable_by_key(|c| c.seq);
    let before = candidates.len();
    let mut sum = 0;
    let fits = candidates
        .iter()
        .take(rows)
        .take_while(|c| {
            sum += c.bytes;
            sum <= bytes
        })
        .count();
    candidates.truncate(fits.max(1));
    candidates.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(seq: i64, bytes: usize) -> Candidate {
        Candidate { seq, id: Uuid::nil(), keyed: true, bytes }
    }

    #[test]
    fn only_a_suffix_by_seq_is_cut() {
        let mut candidates = vec![candidate(3, 10), candidate(1, 10), candidate(2, 10)];
        assert!(trim(&mut candidates, 10, 25));
        assert_eq!(candidates.iter().map(|c| c.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(trim(&mut candidates, 1, 1_000));
        assert_eq!(candidates.len(), 1);
    }

    #[test]
    fn a_single_row_over_the_limit_still_goes() {
        let mut candidates = vec![candidate(1, 1_000), candidate(2, 1)];
        assert!(trim(&mut candidates, 10, 10));
        assert_eq!(candidates.iter().map(|c| c.seq).collect::<Vec<_>>(), [1]);
    }
}
