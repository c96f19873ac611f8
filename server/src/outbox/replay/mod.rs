//! Replay: published events of a window are sent again, gently (design, section 8; ADR-022 D4).
//!
//! Guarantees: a plan says beforehand what will be sent, and running it sends exactly that set, less what was pruned or has become too
//! old by then, each counted; only events that were published for good are in a set, so that none is taken from the drain; the rows stay
//! published, and a live stamp and a replay change nothing of each other; per key the order of staging holds within a replay; the horizon is
//! asked of each row in the statement that reads it for sending. Each event is sent at least once: what a killed replica had sent and not
//! written down is sent again. Live events never wait for it: a lane, a channel and a rate of its own. Does not: keep an order
//! between live events and replayed ones.

mod lane;
mod sql;

use std::collections::HashMap;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use crate::db::{self, Begin, Pool};
use crate::jobs::{self, Hints, Job};

pub use lane::{Lane, Options};
pub use sql::QUERIES;

/// As a job's kind is stored.
pub const KIND: &str = "replay";
/// For how long a plan can be run.
pub const PLAN_LASTS: Duration = Duration::from_secs(3_600);
/// Ids that a plan looks at for what consumers remember.
pub const SAMPLE: i64 = 1_000;
/// A call that starts a replay waits so long for its end: small ones end within it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most time for one transaction.
const LIMIT: Duration = Duration::from_secs(25);
/// So often an act is tried that met a slice's transaction.
const TRIES: u32 = 10;

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Staged at or after this.
    pub from: OffsetDateTime,
    /// Staged before this.
    pub to: OffsetDateTime,
    /// Of this type only.
    pub event_type: Option<String>,
    /// Of this ordering key only.
    pub ordering_key: Option<String>,
}

/// How gently.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Events a second.
    pub max_rate: i32,
    /// Whether it begins with one event, then ten, then a hundred.
    pub ramp: bool,
    /// The share of failures above which it pauses itself.
    pub max_failures: f64,
}

/// What a replay is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The job.
    pub job_id: Uuid,
    /// Which events.
    pub selection: Selection,
    /// Of them those that had been published for good before this.
    pub published_before: OffsetDateTime,
    /// And staged up to here.
    pub upper_seq: i64,
    /// Events of the window that are not part of it.
    pub not_published: i64,
}

/// A replay, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The job.
    pub job: Job,
    /// What it is about.
    pub about: About,
}

/// What could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Failed {
    /// Its place in the outbox.
    pub seq: i64,
    /// The event.
    pub event_id: Uuid,
    /// Why.
    pub error: String,
}

/// Why nothing came of a call.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The window begins before the horizon.
    #[error("what was staged before {0} may not be replayed any more: consumers may have forgotten it")]
    Horizon(OffsetDateTime),
    /// There is none of this name.
    #[error("no such replay, or it was forgotten")]
    NotFound,
    /// The plan's time is over.
    #[error("the plan's hour is over: make a new one")]
    PlanExpired,
    /// It is not in a state in which this can be done.
    #[error("it is {0}")]
    State(&'static str),
    /// As many as there may be are under way.
    #[error(
        "{0} replays are under way or paused, which is as many as there may be: wait for one to end, or cancel one"
    )]
    TooMany(i64),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] db::Error),
}

/// One service's replays. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pool: Pool,
    horizon: Option<Duration>,
    hints: Hints,
}

/// What is done to a replay that is there, and why.
#[derive(Debug, Clone, Copy)]
enum Act<'a> {
    Pause(&'a str),
    Resume,
    Cancel(&'a str),
}

impl Desk {
    /// `horizon`: how old an event may be; `None`: as old as there are. `hints`: of the engine that does the work.
    pub fn new(pool: Pool, horizon: Option<Duration>, hints: Hints) -> Self {
        Self { pool, horizon, hints }
    }

    /// Plans a replay; nothing is sent.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn plan(&self, by: &str, selection: &Selection, pace: Pace) -> Result<Replay, Refused> {
        let id = Uuid::now_v7();
        self.planned(id, by, selection, pace, false).await?;
        self.get(id).await
    }

    /// Plans a replay and runs it at once.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn run_now(&self, by: &str, selection: &Selection, pace: Pace) -> Result<Replay, Refused> {
        let id = Uuid::now_v7();
        self.planned(id, by, selection, pace, true).await?;
        self.hints.started();
        self.ended_or_not(id).await
    }

    /// Runs a plan. One that is run already is told as it is.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn run_plan(
        &self,
        by: &str,
        id: Uuid,
        max_rate: Option<i32>,
        ramp: bool,
    ) -> Result<Replay, Refused> {
        let before = self.get(id).await?;
        if before.job.state == jobs::State::Planned {
            let started = db::within(LIMIT, async {
                let mut tx = self.pool.begin(Begin::Durable).await?;
                let work = async {
                    jobs::lock(tx.conn()).await?;
                    let open = jobs::count_open(tx.conn()).await?;
                    if open >= jobs::MOST_OPEN {
                        return Ok(Err(Refused::TooMany(open)));
                    }
                    Ok(Ok(jobs::start(tx.conn(), KIND, id, by, max_rate, ramp).await?))
                }
                .await;
                tx.finish(work).await
            })
            .await??;
            if !started {
                let now = self.get(id).await?;
                if now.job.state == jobs::State::Planned {
                    return Err(Refused::PlanExpired);
                }
            }
            self.hints.started();
        }
        self.ended_or_not(id).await
    }

    async fn planned(
        &self,
        id: Uuid,
        by: &str,
        selection: &Selection,
        pace: Pace,
        run: bool,
    ) -> Result<(), Refused> {
        db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = self.plan_in(tx.conn(), id, by, selection, pace, run).await;
            match work {
                Ok(Ok(())) => tx.finish(Ok(Ok(()))).await,
                Ok(Err(refused)) => {
                    tx.rollback().await;
                    Ok(Err(refused))
                }
                Err(error) => tx.finish(Err(error)).await,
            }
        })
        .await?
    }

    async fn plan_in(
        &self,
        conn: &mut db::Conn,
        id: Uuid,
        by: &str,
        selection: &Selection,
        pace: Pace,
        run: bool,
    ) -> Result<Result<(), Refused>, db::Error> {
        let frame = sql::frame(conn, self.horizon).await?;
        if let Some(horizon) = frame.horizon
            && selection.from < horizon
        {
            return Ok(Err(Refused::Horizon(horizon)));
        }
        let counts = sql::count(conn, selection, &frame).await?;
        // After the counting, which may take its time.
        if run {
            jobs::lock(conn).await?;
            let open = jobs::count_open(conn).await?;
            if open >= jobs::MOST_OPEN {
                return Ok(Err(Refused::TooMany(open)));
            }
        }
        let plan = jobs::Starting {
            id,
            kind: KIND,
            requested_by: by,
            lasts: PLAN_LASTS,
            max_rate: pace.max_rate,
            ramp: pace.ramp,
            max_failures: pace.max_failures,
            matched: counts.matched,
        };
        jobs::insert(conn, &plan).await?;
        let about = About {
            job_id: id,
            selection: selection.clone(),
            published_before: frame.published_before,
            upper_seq: frame.upper_seq,
            not_published: counts.not_published,
        };
        sql::insert(conn, &about).await?;
        if run {
            jobs::start(conn, KIND, id, by, None, false).await?;
        }
        Ok(Ok(()))
    }

    /// A replay as it stands.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn get(&self, id: Uuid) -> Result<Replay, Refused> {
        let found = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let found = async {
                let Some(job) = jobs::find(read.conn(), KIND, id).await? else { return Ok(None) };
                Ok(sql::about(read.conn(), &[id]).await?.pop().map(|about| Replay { job, about }))
            }
            .await;
            read.finish(found).await
        })
        .await?;
        found.ok_or(Refused::NotFound)
    }

    /// The first ids of a replay's set, by when they were staged, as far as they are still there.
    ///
    /// # Errors
    /// The database's.
    pub async fn sample(&self, about: &About) -> Result<Vec<Uuid>, db::Error> {
        db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let sample = sql::sample(read.conn(), about, SAMPLE).await;
            read.finish(sample).await
        })
        .await
    }

    /// Replays, the newest first, before this one.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(&self, before: Option<Uuid>, limit: i64) -> Result<Vec<Replay>, db::Error> {
        db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let listed = async {
                let jobs = jobs::list(read.conn(), KIND, before, limit).await?;
                let ids: Vec<Uuid> = jobs.iter().map(|job| job.id).collect();
                Ok((jobs, sql::about(read.conn(), &ids).await?))
            }
            .await;
            let (jobs, about) = read.finish(listed).await?;
            let mut about: HashMap<Uuid, About> =
                about.into_iter().map(|about| (about.job_id, about)).collect();
            let replays =
                jobs.into_iter().filter_map(|job| about.remove(&job.id).map(|about| Replay { job, about }));
            Ok(replays.collect())
        })
        .await
    }

    /// What a replay could not send, behind this place.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn failures(&self, id: Uuid, after: i64, limit: i64) -> Result<Vec<Failed>, Refused> {
        self.get(id).await?;
        let failures = db::within(LIMIT, async {
            let mut read = self.pool.read().await?;
            let failures = sql::failures(read.conn(), id, after, limit).await;
            read.finish(failures).await
        });
        Ok(failures.await?)
    }

    /// Has it pause; what a slice has in hand is sent all the same. One that is paused stays so.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn pause(&self, id: Uuid, by: &str) -> Result<Replay, Refused> {
        let reason = format!("paused by {by}");
        self.act(id, Act::Pause(&reason)).await
    }

    /// Has it go on. One that is not paused goes on anyway.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn resume(&self, id: Uuid) -> Result<Replay, Refused> {
        let resumed = self.act(id, Act::Resume).await;
        self.hints.started();
        match resumed {
            Err(Refused::State("running")) => self.get(id).await,
            other => other,
        }
    }

    /// Ends it; what is not sent yet never is. One that is cancelled stays so.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn cancel(&self, id: Uuid, by: &str) -> Result<Replay, Refused> {
        let reason = format!("cancelled by {by}");
        let cancelled = self.act(id, Act::Cancel(&reason)).await;
        self.hints.started();
        cancelled
    }

    /// Brings it into a state, unless it is there. A slice's own transaction is waited for.
    async fn act(&self, id: Uuid, act: Act<'_>) -> Result<Replay, Refused> {
        let into = match act {
            Act::Pause(_) => jobs::State::Paused,
            Act::Resume => jobs::State::Preparing,
            Act::Cancel(_) => jobs::State::Cancelled,
        };
        let mut tries = 0;
        let acted = loop {
            tries += 1;
            let acted = db::within(LIMIT, async {
                let mut tx = self.pool.begin(Begin::Durable).await?;
                let acted = match act {
                    Act::Pause(reason) => jobs::pause(tx.conn(), KIND, id, reason).await,
                    Act::Resume => jobs::resume(tx.conn(), KIND, id).await,
                    Act::Cancel(reason) => jobs::cancel(tx.conn(), KIND, id, reason).await,
                };
                tx.finish(acted).await
            })
            .await;
            match acted {
                Err(error) if error.kind == db::Kind::Contended && tries < TRIES => {}
                other => break other?,
            }
        };
        let replay = self.get(id).await?;
        if acted || replay.job.state == into {
            Ok(replay)
        } else {
            Err(Refused::State(replay.job.state.as_str()))
        }
    }

    /// Waits a moment for its end.
    async fn ended_or_not(&self, id: Uuid) -> Result<Replay, Refused> {
        let until = Instant::now() + PATIENCE;
        loop {
            let replay = self.get(id).await?;
            let moving = matches!(replay.job.state, jobs::State::Preparing | jobs::State::Running);
            if !moving || Instant::now() >= until {
                return Ok(replay);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
