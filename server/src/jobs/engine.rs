//! The loop: claims a slice, has its kind do it, and writes its books.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::sql::{self, Books, Claimed};
use super::{MOST_SLICE, State};
use crate::db::{self, Begin, Pool};
use crate::metrics::Jobs;

/// Without a job: how often it is looked whether another replica has left one behind. What is started here is known here.
const IDLE: Duration = Duration::from_secs(5);
/// With one: the longest time between looks.
const BUSY: Duration = Duration::from_secs(1);
/// After an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Most time for one transaction.
const LIMIT: Duration = Duration::from_secs(25);

/// Which part of a job a slice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its set is copied.
    Prepare,
    /// It is done.
    Run,
    /// It is over: what is left of it is cleared away.
    Clear,
}

/// A slice to be done.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The job.
    pub id: Uuid,
    /// Which part of it.
    pub step: Step,
    /// Rows of its set, as it was planned.
    pub matched: i64,
    /// Most rows.
    pub rows: i32,
    /// Nothing is begun after that.
    pub until: Instant,
    /// Nor after this.
    pub closing: CancellationToken,
}

/// What a slice came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were done.
    pub done: i64,
    /// Rows that could not be.
    pub failed: i64,
    /// Rows that had become too old.
    pub expired: i64,
    /// Rows that were gone.
    pub pruned: i64,
    /// Nothing is left of this part.
    pub finished: bool,
    /// There is no use in another one before.
    pub wait: Duration,
}

/// What a job of one kind does.
pub trait Kind: Send + Sync + 'static {
    /// As it is stored.
    const NAME: &'static str;
    /// What a slice did, until it is written down.
    type Done: Send + Sync;

    /// Does a slice. Nothing of it counts before [`Kind::write`] was committed: it may be done again.
    fn work(&self, turn: &Turn) -> impl Future<Output = Result<Self::Done, db::Error>> + Send;

    /// Writes it down, in the transaction of the job's books, which is rolled back if the job is another slice's by then.
    fn write(
        &self,
        conn: &mut db::Conn,
        turn: &Turn,
        done: &Self::Done,
    ) -> impl Future<Output = Result<Progress, db::Error>> + Send;
}

/// How slices are claimed.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who claims.
    pub instance: String,
    /// For how long a slice begins with new rows.
    pub work: Duration,
    /// After so long the slice of a replica that is gone is another one's: longer than `work` and what was begun last.
    pub lease: Duration,
}

impl Options {
    /// With the usual times. `row`: the longest that one row may take.
    pub fn new(instance: String, row: Duration) -> Self {
        let work = Duration::from_secs(30);
        Self { instance, work, lease: work + row + Duration::from_secs(30) }
    }
}

/// Wakes the engine of this replica. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Hints(Arc<Notify>);

impl Hints {
    /// A job was started, or goes on.
    pub fn started(&self) {
        self.0.notify_one();
    }
}

/// The engine of one kind of job, of one service.
pub struct Engine<K> {
    pool: Pool,
    kind: K,
    options: Options,
    hints: Hints,
    metrics: Jobs,
}

impl<K: Kind> Engine<K> {
    /// Over the database behind this pool.
    pub fn new(pool: Pool, kind: K, options: Options, metrics: Jobs) -> (Self, Hints) {
        let hints = Hints::default();
        (Self { pool, kind, options, hints: hints.clone(), metrics }, hints)
    }

    /// Works until `shutdown`; what it has in hand then is brought to its end. An error is logged once a streak, from the second in a
    /// row on, and never ends the loop.
    pub async fn run(self, shutdown: CancellationToken) {
        let service = self.metrics.service().to_owned();
        let mut wait = IDLE.mul_f64(rand::random_range(0.2..1.0));
        let mut failures = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.hints.0.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            match self.run_once(&shutdown).await {
                Ok(next) => {
                    if failures > 1 {
                        info!(service.name = %service, "jobs go on");
                    }
                    (failures, wait) = (0, next.mul_f64(rand::random_range(0.9..1.1)));
                }
                Err(error) => {
                    self.pool.gate().failed(&error);
                    (failures, wait) = (failures.saturating_add(1), AFTER_ERROR);
                    if failures == 2 {
                        warn!(service.name = %service, %error, "jobs wait: their database fails");
                    } else {
                        debug!(service.name = %service, %error, "a job's slice failed");
                    }
                }
            }
        }
    }

    /// One slice, if a job is due; when to look again.
    ///
    /// # Errors
    /// The database's. What was not written is done again.
    pub async fn run_once(&self, shutdown: &CancellationToken) -> Result<Duration, db::Error> {
        if !self.pool.gate().is_open() {
            return Ok(IDLE);
        }
        let open = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let open = sql::open(read.conn()).await;
            read.finish(open).await
        })
        .await?;
        self.metrics.open(open.running, open.paused);
        let Some(due) = open.due else { return Ok(IDLE) };
        if due > 0.0 {
            return Ok(Duration::try_from_secs_f64(due).unwrap_or(BUSY).min(BUSY));
        }
        let started = Instant::now();
        let claimed = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let claimed =
                sql::claim(tx.conn(), K::NAME, &self.options.instance, self.options.lease, MOST_SLICE).await;
            tx.finish(claimed).await
        })
        .await?;
        // Another replica has it.
        let Some(claimed) = claimed else { return Ok(BUSY) };
        self.slice(claimed, started + self.options.work, shutdown).await?;
        Ok(Duration::ZERO)
    }

    async fn slice(
        &self,
        claimed: Claimed,
        until: Instant,
        shutdown: &CancellationToken,
    ) -> Result<(), db::Error> {
        let step = match claimed.state {
            State::Preparing => Step::Prepare,
            State::Running => Step::Run,
            State::Planned | State::Paused | State::Done | State::Cancelled => Step::Clear,
        };
        let turn = Turn {
            id: claimed.id,
            step,
            matched: claimed.matched,
            rows: claimed.rows,
            until,
            closing: shutdown.clone(),
        };
        let worked = match self.kind.work(&turn).await {
            Ok(done) => self.write(&claimed, &turn, &done).await,
            Err(error) => Err(error),
        };
        if worked.is_err() {
            // Else it would wait for the lease; if this fails, too, it does.
            let _ = self.give_back(&claimed).await;
        }
        worked
    }

    async fn write(&self, claimed: &Claimed, turn: &Turn, done: &K::Done) -> Result<(), db::Error> {
        let written = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = async {
                let progress = self.kind.write(tx.conn(), turn, done).await?;
                let next = match (turn.step, progress.finished) {
                    (Step::Prepare, true) => Some(State::Running),
                    (Step::Run, true) => Some(State::Done),
                    _ => None,
                };
                let cleared = progress.finished && turn.step != Step::Prepare;
                let books = Books {
                    done: progress.done,
                    failed: progress.failed,
                    expired: progress.expired,
                    pruned: progress.pruned,
                };
                let state = sql::settle(tx.conn(), claimed, books, next, cleared, progress.wait).await?;
                Ok(state.map(|state| (progress, state)))
            }
            .await;
            if let Ok(None) = work {
                tx.rollback().await;
                return Ok(None);
            }
            tx.finish(work).await
        })
        .await?;
        let Some((progress, state)) = written else {
            debug!(job.id = %claimed.id, "another replica goes on with the job: what this one did is done again");
            self.metrics.slice(K::NAME, "outdated");
            return Ok(());
        };
        self.metrics.slice(K::NAME, "written");
        self.metrics.rows(K::NAME, "done", progress.done);
        self.metrics.rows(K::NAME, "failed", progress.failed);
        self.metrics.rows(K::NAME, "expired", progress.expired);
        self.metrics.rows(K::NAME, "pruned", progress.pruned);
        if turn.step != Step::Clear && state.is_over() {
            info!(service.name = %self.metrics.service(), job.id = %claimed.id, state = state.as_str(), "a job is over");
        } else if turn.step != Step::Clear && state == State::Paused && progress.failed > 0 {
            warn!(service.name = %self.metrics.service(), job.id = %claimed.id, "a job of which too much failed has paused itself");
        }
        Ok(())
    }

    async fn give_back(&self, claimed: &Claimed) -> Result<(), db::Error> {
        db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let given =
                sql::settle(tx.conn(), claimed, Books::default(), None, false, AFTER_ERROR).await.map(|_| ());
            tx.finish(given).await
        })
        .await
    }
}
