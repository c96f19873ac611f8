//! The watch over what is held: tells, and never reaps.
//!
//! Each interval every replica counts what is held and measures the oldest (two gauges). The one that has the watch's lock then
//! warns once an hour, or when the oldest is another one, of what is held for too long, and carries out decisions that were
//! left half done. Guarantees: however many replicas and restarts, one warning (the last one is in the database); an age is told
//! by the database's clock; while the schema's gate is shut it only looks. Does not: decide a pair. Nobody here knows a slow operation from an abandoned one: dropping would take
//! a live one's events, releasing would publish half of them (ADR-039).

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Desk, Outcome, Pair, sql};
use crate::db::{self, Begin};

/// How a service's holds are watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often to look. Jittered by a tenth.
    pub interval: Duration,
    /// How old the oldest may grow before it is warned of; zero: it never is.
    pub age_warn: Duration,
    /// When the same one is warned of again.
    pub warn_again: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(300),
            age_warn: Duration::from_secs(7_200),
            warn_again: Duration::from_secs(3_600),
        }
    }
}

/// The first look comes early, at a moment of its own: a restart must not leave the gauges at zero for an interval.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Pairs of one step of the walk.
const PAGE: i64 = 1_000;
/// A decision younger than this part of the interval is still being carried out by whoever took it.
const GRACE: f64 = 0.1;
/// For how long one look goes on with one pair; the rest is for the next look.
const CARRY_OUT: Duration = Duration::from_secs(60);

/// What one look found and did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rows held.
    pub held: i64,
    /// The age of the oldest of them, in seconds.
    pub oldest_age: i64,
    /// Whether this replica had the watch's lock. If not, it did no more than look.
    pub locked: bool,
    /// Whether it warned.
    pub warned: bool,
    /// Rows of released pairs that were held all the same.
    pub released: u64,
    /// Rows of dropped pairs that were held all the same.
    pub dropped: u64,
}

/// Watches one service's holds.
pub struct Watch {
    desk: Desk,
    options: Options,
}

impl Watch {
    /// Over the holds of this desk.
    pub fn new(desk: Desk, options: Options) -> Self {
        Self { desk, options }
    }

    /// Works until `shutdown`. An error is logged once a streak, from the second in a row on (the first may be an outage that
    /// others tell of), and never ends the loop.
    pub async fn run(self, shutdown: CancellationToken) {
        let service = self.desk.metrics.service().to_owned();
        let mut next =
            Instant::now() + FIRST_LOOK.min(self.options.interval).mul_f64(rand::random_range(0.2..1.0));
        let mut failures = 0_u32;
        loop {
            let looked = tokio::select! {
                biased;
                // What it was in the middle of is done by the next look, here or elsewhere.
                () = shutdown.cancelled() => return,
                looked = async {
                    tokio::time::sleep_until(next).await;
                    self.run_once().await
                } => looked,
            };
            next = Instant::now() + self.options.interval.mul_f64(rand::random_range(0.9..1.1));
            match looked {
                Ok(_) => {
                    if failures > 1 {
                        info!(service.name = %service, "holds are watched again");
                    }
                    failures = 0;
                }
                Err(error) => {
                    self.desk.pool.gate().failed(&error);
                    failures = failures.saturating_add(1);
                    if failures == 2 {
                        warn!(service.name = %service, %error, "holds cannot be watched; their gauges stand still");
                    } else {
                        debug!(service.name = %service, %error, "a look at the holds failed");
                    }
                }
            }
        }
    }

    /// One look.
    ///
    /// # Errors
    /// The database's; what was done before it stays done.
    pub async fn run_once(&self) -> Result<Report, db::Error> {
        let mut report = db::within(super::LIMIT, self.look()).await?;
        if !report.locked {
            return Ok(report);
        }
        let mut after: Option<Pair> = None;
        loop {
            let page = db::within(super::LIMIT, self.left_behind(after.as_ref())).await?;
            for (pair, outcome) in &page.pairs {
                // Carrying out deletes rows.
                if !self.desk.pool.gate().is_open() {
                    return Ok(report);
                }
                let (rows, complete) = self.desk.apply(pair, *outcome, CARRY_OUT).await?;
                match outcome {
                    Outcome::Released => report.released += rows,
                    Outcome::Dropped => report.dropped += rows,
                }
                self.desk.metrics.holds.left_behind(outcome.as_str(), rows);
                info!(
                    service.name = %self.desk.metrics.service(),
                    operation.id = %pair.operation_id,
                    generation = pair.generation,
                    outcome = outcome.as_str(),
                    rows,
                    complete,
                    "a decision that had rows left was carried out"
                );
            }
            after = page.next;
            if after.is_none() {
                return Ok(report);
            }
        }
    }

    /// The gauges and the warning: one transaction, on the primary.
    async fn look(&self) -> Result<Report, db::Error> {
        let mut tx = self.desk.pool.begin(Begin::Durable).await?;
        let work = async {
            let locked = sql::watch_lock(tx.conn()).await?;
            let seen = sql::look(tx.conn()).await?;
            let late = i64::try_from(self.options.age_warn.as_secs()).unwrap_or(i64::MAX);
            let mut report = Report { held: seen.rows, oldest_age: seen.age, locked, ..Report::default() };
            if locked
                && late > 0
                && seen.age >= late
                && let (Some(operation_id), Some(generation)) = (&seen.operation_id, seen.generation)
            {
                let again = self.options.warn_again.as_secs_f64();
                report.warned = sql::warned(tx.conn(), operation_id, generation, again).await?;
            }
            Ok((report, seen))
        }
        .await;
        let (report, seen) = tx.finish(work).await?;
        let metrics = &self.desk.metrics;
        metrics.holds.rows.set(report.held);
        metrics.holds.oldest_age.set(report.oldest_age);
        debug!(
            service.name = %metrics.service(),
            rows = report.held,
            oldest_age_seconds = report.oldest_age,
            acts = report.locked,
            "looked at what is held"
        );
        if report.warned {
            warn!(
                service.name = %metrics.service(),
                rows = report.held,
                oldest_age_seconds = report.oldest_age,
                operation.id = seen.operation_id.as_deref().unwrap_or_default(),
                generation = seen.generation.unwrap_or_default(),
                "events are held for long: their operation was neither released nor dropped"
            );
        }
        Ok(report)
    }

    async fn left_behind(&self, after: Option<&Pair>) -> Result<sql::Behind, db::Error> {
        let mut read = self.desk.pool.read().await?;
        let grace = self.options.interval.mul_f64(GRACE).as_secs_f64();
        let page = sql::left_behind(read.conn(), after, PAGE, grace).await;
        read.finish(page).await
    }
}
