//! The resolver loop: writes the verdict soon, for every row, whatever else the row waits for.
//!
//! Two ways in: tickets that somebody hinted at ([`Hints`]), and a walk over all undecided tickets each
//! interval, so that a lost hint loses nothing. Each transaction asks at most [`MAX_FREE_PER_TX`] tickets. Two replicas
//! may resolve at once: verdicts are facts, and rows another one is busy with are skipped.
//! Does not: deliver anything; whoever wants to know that rows became deliverable gets a wake-up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::open::OpenTickets;
use super::{MAX_FREE_PER_TX, Resolvable, Verdicts, ask, sweep::Sweeper};
use crate::db::{self, Begin, Pool};
use crate::metrics::ServiceMetrics;

/// How a service's resolver works.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often all undecided tickets are asked. Jittered by a tenth.
    pub interval: Duration,
    /// How often the tickets' own table is walked for rows to sweep.
    pub sweep_interval: Duration,
    /// How long a ticket's lock must have been found free before its row goes. Stages end within one minute; not less
    /// than two.
    pub sweep_after: Duration,
    /// Most time one transaction may take before it is given up.
    pub limit: Duration,
    /// Most time for the look at what is undecided: index probes. Whoever stands still for longer is asked again on another
    /// connection, so that a database that moved is found within seconds.
    pub patience: Duration,
    /// How long a transaction with staged events may be open before it is warned of, once.
    pub open_warn: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            sweep_interval: Duration::from_secs(30),
            sweep_after: Duration::from_secs(120),
            limit: Duration::from_secs(30),
            patience: Duration::from_secs(8),
            open_warn: Duration::from_secs(300),
        }
    }
}

/// What one round did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Rows stamped as committed.
    pub kept: u64,
    /// Rows discarded.
    pub discarded: u64,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.discarded += other.discarded;
    }
}

/// Sends tickets to a service's resolver. Never blocks; a full queue drops the hint, and the walk finds the row.
#[derive(Debug, Clone)]
pub struct Hints(mpsc::Sender<i64>);

impl Hints {
    /// Asks for these tickets now.
    pub fn ask(&self, tickets: impl IntoIterator<Item = i64>) {
        for ticket in tickets {
            if self.0.try_send(ticket).is_err() {
                return;
            }
        }
    }
}

/// The connection of a service without undecided tickets: it is looked at again in a second.
#[derive(Debug, Default)]
struct Kept {
    read: Option<db::Read>,
    uses: u32,
}

/// Then it goes back to the pool, which ends old connections.
const KEPT_FOR: u32 = 600;

/// Resolves the tickets of one service's database.
pub struct Resolver {
    pool: Pool,
    tables: Vec<Arc<dyn Resolvable>>,
    options: Options,
    metrics: ServiceMetrics,
    /// Told whenever rows became deliverable.
    resolved: Arc<tokio::sync::Notify>,
    hints: mpsc::Receiver<i64>,
}

impl Resolver {
    /// A resolver over the tables given, and the way to hint it.
    pub fn new(
        pool: Pool,
        tables: Vec<Arc<dyn Resolvable>>,
        options: Options,
        metrics: ServiceMetrics,
        resolved: Arc<tokio::sync::Notify>,
    ) -> (Self, Hints) {
        let (sender, hints) = mpsc::channel(4096);
        (Self { pool, tables, options, metrics, resolved, hints }, Hints(sender))
    }

    /// Works until `shutdown`. Errors are logged once a streak and never end the loop.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut sweeper = Sweeper::default();
        let mut next_walk = tokio::time::Instant::now() + self.jittered(self.options.interval);
        let mut next_sweep = tokio::time::Instant::now() + self.jittered(self.options.sweep_interval);
        let mut failing = false;
        let mut open = OpenTickets::default();
        let mut kept = Kept::default();
        loop {
            let mut hinted = Vec::new();
            let walk = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                // Before the hints: a flood of them must not keep open tickets from being asked.
                () = tokio::time::sleep_until(next_walk) => true,
                n = self.hints.recv_many(&mut hinted, MAX_FREE_PER_TX) => if n == 0 { return } else { false },
            };
            let work = async {
                if walk {
                    self.walk(&mut open, &mut kept).await
                } else {
                    self.resolve(&hinted, &mut Vec::new()).await
                }
            };
            let outcome = tokio::select! {
                biased;
                // Not waited for: a database that does not answer would hold up the stop. A verdict is a fact, and whoever comes
                // next writes it.
                () = shutdown.cancelled() => return,
                outcome = work => outcome,
            };
            if walk {
                next_walk = tokio::time::Instant::now() + self.jittered(self.options.interval);
            }
            match outcome {
                Ok(report) => {
                    if failing {
                        tracing::info!(service.name = %self.metrics.service(), "resolver works again");
                    }
                    failing = false;
                    if report.kept > 0 {
                        self.resolved.notify_one();
                    }
                }
                Err(error) if failing => {
                    self.missed(&error);
                    debug!(service.name = %self.metrics.service(), %error, "resolver still fails");
                }
                Err(error) => {
                    self.missed(&error);
                    failing = true;
                    warn!(service.name = %self.metrics.service(), %error, "resolver cannot reach its database");
                }
            }
            if walk && !failing && next_sweep <= tokio::time::Instant::now() {
                next_sweep = tokio::time::Instant::now() + self.jittered(self.options.sweep_interval);
                let swept = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    swept = sweeper.run_once(&self.pool, &self.tables, &self.options) => swept,
                };
                match swept {
                    Ok(n) => self.metrics.tickets.swept.inc_by(n),
                    Err(error) => {
                        debug!(service.name = %self.metrics.service(), %error, "ticket sweep put off")
                    }
                }
            }
        }
    }

    fn missed(&self, error: &db::Error) {
        self.pool.pulse().missed(error);
        self.pool.gate().failed(error);
    }

    /// Asks every undecided ticket of every table once.
    ///
    /// # Errors
    /// The database's; what was resolved before it stays resolved.
    async fn walk(&self, open: &mut OpenTickets, kept: &mut Kept) -> Result<Report, db::Error> {
        let mut report = Report::default();
        let mut after = None;
        let mut failed = None;
        let mut still_open = Vec::new();
        loop {
            let page = db::within(self.options.patience, self.page(after, kept)).await?;
            let Some(last) = page.last().copied() else { break };
            after = Some(last);
            match self.resolve(&page, &mut still_open).await {
                Ok(one) => report.add(one),
                // One page that fails each time must not keep the tickets after it from being asked.
                Err(error) => failed = failed.or(Some(error)),
            }
            if page.len() < MAX_FREE_PER_TX {
                break;
            }
        }
        let oldest = open.update(Instant::now(), &still_open);
        self.metrics.tickets.open(still_open.len(), oldest);
        if open.warns_of(oldest, self.options.open_warn) {
            warn!(
                service.name = %self.metrics.service(),
                age_seconds = oldest.as_secs(),
                tickets = still_open.len(),
                "a transaction with staged events has been open for long; its events wait for its end"
            );
        }
        failed.map_or(Ok(report), Err)
    }

    /// One page of the walk: tickets above `after`, all tables together, ascending.
    async fn page(&self, after: Option<i64>, kept: &mut Kept) -> Result<Vec<i64>, db::Error> {
        let mut read = match kept.read.take() {
            Some(read) => read,
            None => self.pool.read().await?,
        };
        let work = async {
            let mut page = BTreeSet::new();
            for table in &self.tables {
                page.extend(table.undecided(read.conn(), after, MAX_FREE_PER_TX as i64).await?);
            }
            Ok(page.into_iter().take(MAX_FREE_PER_TX).collect::<Vec<_>>())
        }
        .await;
        kept.uses = (kept.uses + 1) % KEPT_FOR;
        if work.as_ref().is_ok_and(Vec::is_empty) && kept.uses > 0 && self.pool.spares_one() {
            kept.read = Some(read);
            return work;
        }
        read.finish(work).await
    }

    /// Asks these tickets and writes what was found out.
    ///
    /// # Errors
    /// The database's; what was written before it stays written, and asking again is harmless.
    async fn resolve(&self, tickets: &[i64], open: &mut Vec<i64>) -> Result<Report, db::Error> {
        let mut report = Report::default();
        for chunk in tickets.chunks(MAX_FREE_PER_TX) {
            loop {
                let (one, verdicts, more) = db::within(self.options.limit, self.resolve_chunk(chunk)).await?;
                report.add(one);
                if !more {
                    open.extend(verdicts.open);
                    break;
                }
            }
        }
        Ok(report)
    }

    /// One transaction; tells whether the same tickets are worth another.
    async fn resolve_chunk(&self, tickets: &[i64]) -> Result<(Report, Verdicts, bool), db::Error> {
        let mut tx = self.pool.begin(Begin::Durable).await?;
        let work = self.ask_and_apply(&mut tx, tickets).await;
        let (verdicts, applied) = tx.finish(work).await?;
        self.metrics.tickets.discarded("rolled_back", applied.discarded);
        let report = Report { kept: applied.kept, discarded: applied.discarded };
        Ok((report, verdicts, applied.more))
    }

    async fn ask_and_apply(
        &self,
        tx: &mut db::Tx,
        tickets: &[i64],
    ) -> Result<(Verdicts, super::Applied), db::Error> {
        let verdicts = ask(tx.conn(), tickets).await?;
        let mut applied = super::Applied::default();
        if !verdicts.none_decided() {
            for table in &self.tables {
                let one = table.apply(tx.conn(), &verdicts).await?;
                applied.kept += one.kept;
                applied.discarded += one.discarded;
                applied.more |= one.more;
            }
        }
        Ok((verdicts, applied))
    }

    fn jittered(&self, interval: Duration) -> Duration {
        interval.mul_f64(rand::random_range(0.9..1.1))
    }
}
