//! Retention: what is kept for a time goes after it (design, section 10; ADR-022's retention policy).
//!
//! Each interval one *cycle* prunes a service's tables in batches, each batch a transaction of its own. Guarantees: one cycle an
//! interval and one replica at a time, whatever the number of replicas and restarts: the cadence is a row of the service's database,
//! decided by that database's clock; a batch that is no longer its cycle's is rolled back; a cycle whose replica was killed is gone on
//! with by another, within the same cap. Only what its owner calls done is pruned (`outbox::prune`): pending rows are kept for
//! ever; nothing is pruned while the schema's gate is shut. Does not: hurry (it rests after each batch as long as the batch took), keep an audit table short, or concern health.
//!
//! ```text
//!             due, by started_at              batches, each renews the lease
//!   resting ──────────────────────▶ running ─────────────────────────────────┐
//!      ▲                             │   ▲ lease over: anybody goes on        │
//!      └── nothing left, or the cap ─┘   └──────── (killed, or an error) ◀────┘
//! ```

mod sql;
mod table;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::db::{self, Begin, Pool};
use crate::metrics::ServiceMetrics;
use sql::Begun;
use table::Table;

pub use sql::QUERIES;

/// Rows of one transaction: far below its time limits, and short for whoever waits behind it.
const BATCH: u64 = 1_000;
/// Most time for one transaction.
const LIMIT: Duration = Duration::from_secs(25);
/// The first look comes early, at a moment of its own: a restart must not leave the gauges at zero for long.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// The longest time between looks: what a cycle may come late.
const LOOK: Duration = Duration::from_secs(60);
/// By so much of the interval a cycle comes late, at most, drawn each time: services that began together drift apart.
const JITTER: f64 = 0.1;

/// How long what is kept; zero: for ever. The same for all services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Published events, by when they were staged; decisions about holds.
    pub outbox: Duration,
    /// What consumers have seen, by when it was last touched.
    pub inbox: Duration,
}

/// How a service's tables are pruned.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is kept for how long.
    pub windows: Windows,
    /// From one cycle's start to the next one's, at least.
    pub interval: Duration,
    /// Most rows of one cycle, all tables together.
    pub most: u64,
    /// After so long without a batch another replica goes on with the cycle. Longer than a batch may take.
    pub lease: Duration,
}

impl Options {
    /// With the usual lease.
    pub fn new(windows: Windows, interval: Duration, most: u64) -> Self {
        Self { windows, interval, most, lease: Duration::from_secs(60) }
    }

    fn look(&self) -> Duration {
        (self.interval / 20).clamp(Duration::from_millis(10), LOOK)
    }
}

/// What one look did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// No cycle is due, or somebody else runs it, or the gate is shut.
    NotNow {
        /// A cycle was not brought to its end yet.
        running: bool,
    },
    /// A cycle was brought to its end.
    Done(Done),
    /// Another replica took the cycle over: this one had been away for longer than its lease.
    Lost,
}

/// A cycle's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Rows that this replica pruned, by table.
    pub pruned: Vec<(&'static str, u64)>,
    /// Whether the cap ended it.
    pub capped: bool,
}

/// Prunes one service's tables.
pub struct Retention {
    pool: Pool,
    options: Options,
    metrics: ServiceMetrics,
}

impl Retention {
    /// Over the database behind this pool.
    pub fn new(pool: Pool, options: Options, metrics: ServiceMetrics) -> Self {
        Self { pool, options, metrics }
    }

    /// Works until `shutdown`. An error is logged once a streak, from the second in a row on (the first may be an outage that
    /// others tell of), and never ends the loop.
    pub async fn run(self, shutdown: CancellationToken) {
        let service = self.metrics.service().to_owned();
        let look = self.options.look();
        let mut next = Instant::now() + FIRST_LOOK.min(look).mul_f64(rand::random_range(0.2..1.0));
        let mut failures = 0_u32;
        loop {
            let looked = tokio::select! {
                biased;
                // The batch in hand is rolled back; the rest is for whoever goes on.
                () = shutdown.cancelled() => return,
                looked = async {
                    tokio::time::sleep_until(next).await;
                    self.run_once().await
                } => looked,
            };
            // A gate is asked in memory: right after a start it may not have been looked through yet.
            let pause = if self.pool.gate().is_open() { look } else { FIRST_LOOK.min(look) };
            next = Instant::now() + pause.mul_f64(rand::random_range(0.9..1.1));
            match looked {
                // A look alone proves nothing while a cycle waits for its end.
                Ok(Report::NotNow { running: true } | Report::Lost) => {}
                Ok(Report::NotNow { running: false } | Report::Done(_)) => {
                    if failures > 1 {
                        info!(service.name = %service, "retention works again");
                    }
                    failures = 0;
                }
                Err(error) => {
                    self.pool.gate().failed(&error);
                    failures = failures.saturating_add(1);
                    if failures == 2 {
                        warn!(service.name = %service, %error, "retention fails: what is past its time stays for now");
                    } else {
                        debug!(service.name = %service, %error, "retention failed");
                    }
                }
            }
        }
    }

    /// One look, and the cycle if one is due.
    ///
    /// # Errors
    /// The database's. What was pruned before it stays pruned; the cycle is gone on with when its lease is over.
    pub async fn run_once(&self) -> Result<Report, db::Error> {
        if !self.pool.gate().is_open() {
            return Ok(self.put_off());
        }
        let Options { interval, lease, .. } = self.options;
        let seen = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let seen = sql::look(read.conn(), interval, lease).await;
            read.finish(seen).await
        })
        .await?;
        self.tell(seen.succeeded, seen.capped);
        debug!(service.name = %self.metrics.service(), due = seen.due, free = seen.free, "looked whether retention is due");
        if !seen.due || !seen.free {
            return Ok(Report::NotNow { running: seen.due });
        }
        let begun = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let begun = sql::start(tx.conn(), interval, lease, rand::random_range(0.0..JITTER)).await;
            tx.finish(begun).await
        })
        .await?;
        match begun {
            Some(begun) => self.cycle(begun).await,
            None => Ok(Report::NotNow { running: true }),
        }
    }

    /// What must go is told by columns; in a schema that is not ours they may mean something else.
    fn put_off(&self) -> Report {
        debug!(service.name = %self.metrics.service(), "the schema's gate is not open; nothing is pruned");
        Report::NotNow { running: true }
    }

    async fn cycle(&self, begun: Begun) -> Result<Report, db::Error> {
        let from = Instant::now();
        let before = u64::try_from(begun.pruned).unwrap_or(0);
        let mut left = self.options.most.saturating_sub(before);
        let mut pruned: Vec<(&'static str, u64)> = Table::ALL.iter().map(|table| (table.name(), 0)).collect();
        // A batch of each in turn: none waits behind another one's millions.
        let mut open: VecDeque<Table> = Table::ALL.into();
        while let Some(table) = open.pop_front() {
            let Some(kept) = table.kept(&self.options.windows) else { continue };
            if left == 0 {
                open.push_front(table);
                break;
            }
            // It may have been shut since. When it is open again and the lease is over, the cycle is gone on with.
            if !self.pool.gate().is_open() {
                return Ok(self.put_off());
            }
            let (at, limit) = (Instant::now(), left.min(BATCH));
            let Some(gone) = self.batch(begun, table, kept, limit).await? else {
                debug!(service.name = %self.metrics.service(), "another replica goes on with the retention cycle");
                return Ok(Report::Lost);
            };
            left = left.saturating_sub(gone);
            for (name, rows) in &mut pruned {
                if *name == table.name() {
                    *rows += gone;
                }
            }
            if gone == limit {
                open.push_back(table);
                // Half of a connection's time at most, whatever the cap is.
                tokio::time::sleep(at.elapsed()).await;
            }
        }
        let capped = !open.is_empty();
        let finished = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let finished = sql::finish(tx.conn(), begun.generation, capped).await;
            tx.finish(finished).await
        })
        .await?;
        let Some(succeeded) = finished else { return Ok(Report::Lost) };
        self.tell(succeeded, capped);
        self.log(&pruned, capped, before, from.elapsed());
        Ok(Report::Done(Done { pruned, capped }))
    }

    /// One transaction; `None`: the cycle is somebody else's by now, and nothing was pruned.
    async fn batch(
        &self,
        begun: Begun,
        table: Table,
        kept: Duration,
        limit: u64,
    ) -> Result<Option<u64>, db::Error> {
        let gone = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Forgettable).await?;
            let work = async {
                let gone = table.prune(tx.conn(), kept, i64::try_from(limit).unwrap_or(i64::MAX)).await?;
                let ours = sql::renew(tx.conn(), begun.generation, gone, self.options.lease).await?;
                Ok(ours.then_some(gone))
            }
            .await;
            if let Ok(None) = work {
                tx.rollback().await;
                return Ok(None);
            }
            tx.finish(work).await
        })
        .await?;
        if let Some(gone) = gone {
            self.metrics.retention.pruned(table.name(), gone);
        }
        Ok(gone)
    }

    fn tell(&self, succeeded: i64, capped: bool) {
        self.metrics.retention.last_success.set(succeeded);
        self.metrics.retention.capped.set(i64::from(capped));
    }

    fn log(&self, pruned: &[(&'static str, u64)], capped: bool, before: u64, took: Duration) {
        let rows: u64 = pruned.iter().map(|(_, rows)| rows).sum();
        let service = self.metrics.service();
        if rows == 0 && !capped {
            debug!(service.name = %service, "nothing is past its retention");
            return;
        }
        let tables = pruned.iter().map(|(name, rows)| format!("{name}={rows}")).collect::<Vec<_>>().join(" ");
        info!(
            service.name = %service,
            rows,
            tables,
            rows_before = before,
            capped,
            seconds = took.as_secs_f64(),
            "pruned what was past its retention"
        );
    }
}
