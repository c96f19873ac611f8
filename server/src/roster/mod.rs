//! The roster: which services there were, and what each had left undelivered when that was last counted. A service that is taken
//! out of the configuration with events left would never be drained again, and nobody would notice: so a server does not start
//! without it (design, section 11).
//!
//! Guarantees: a service that was ever served is on the roster until `holdfast forget-service`; its count is at most half a
//! minute older than the last replica's death, and taken anew at an orderly stop. A service that was renamed is one taken out and
//! one added. Does not: hold up staging or draining while the control database is away (then it only warns, once that is back),
//! or know how a service's database is reached.

mod sql;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::db::{self, Begin, Pool};
use crate::outbox::depth;

pub use sql::QUERIES;

/// How often counts are written. Jittered by a tenth.
const INTERVAL: Duration = Duration::from_secs(30);
/// The first time comes soon: a service is unknown until then.
const FIRST: Duration = Duration::from_secs(5);
/// An older measurement is of a database that does not answer: what was known of it stands.
const FRESH: Duration = Duration::from_secs(60);
/// Most time for one statement about the roster.
const LIMIT: Duration = Duration::from_secs(5);
/// Most time for the last count, all services at once.
pub const LAST_COUNT: Duration = Duration::from_secs(1);

/// A service that was configured.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// What it had left when that was last counted; `None`: never.
    pub undelivered: Option<i64>,
    /// When that was.
    pub counted_at: Option<OffsetDateTime>,
    /// When a server last had it.
    pub last_seen: OffsetDateTime,
}

impl Known {
    /// Whether something may be left.
    pub fn has_left(&self) -> bool {
        self.undelivered != Some(0)
    }
}

/// In words.
impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, undelivered, counted_at, last_seen } = self;
        match (undelivered, counted_at) {
            (Some(rows), Some(at)) => write!(f, "{name} ({rows} undelivered, counted at {at})"),
            _ => write!(f, "{name} (never counted, last served at {last_seen})"),
        }
    }
}

/// The services that are known and not among these, by name.
///
/// # Errors
/// The control database's.
pub async fn absent(control: &Pool, configured: &[String]) -> Result<Vec<Known>, db::Error> {
    db::within(LIMIT, async {
        let mut read = control.read().await?;
        let known = sql::absent(read.conn(), configured).await;
        read.finish(known).await
    })
    .await
}

/// Puts these on the roster.
///
/// # Errors
/// The control database's.
pub async fn meet(control: &Pool, configured: &[String]) -> Result<(), db::Error> {
    db::within(LIMIT, async {
        let mut tx = control.begin(Begin::Durable).await?;
        let met = sql::meet(tx.conn(), configured).await;
        tx.finish(met).await
    })
    .await
}

/// Takes a service off the roster; tells what was known of it.
///
/// # Errors
/// The control database's.
pub async fn forget(control: &Pool, name: &str) -> Result<Option<Known>, db::Error> {
    db::within(LIMIT, async {
        let mut tx = control.begin(Begin::Durable).await?;
        let known = sql::forget(tx.conn(), name).await;
        tx.finish(known).await
    })
    .await
}

/// A service whose outbox is counted.
#[derive(Debug)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// Its database.
    pub pool: Pool,
    /// What is measured of it anyway.
    pub depth: depth::Latest,
}

/// Keeps the roster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Roster {
    control: Pool,
    services: Arc<Vec<Counted>>,
    /// Whether absent services were looked for at start.
    looked: bool,
}

impl Roster {
    /// Of these services.
    pub fn new(control: Pool, services: Vec<Counted>, looked: bool) -> Self {
        Self { control, services: Arc::new(services), looked }
    }

    /// Works until `shutdown`. Does not complain of the control database: others do.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut next = Instant::now() + FIRST.mul_f64(rand::random_range(0.9..1.1));
        loop {
            let done = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                done = async {
                    tokio::time::sleep_until(next).await;
                    self.run_once().await
                } => done,
            };
            next = Instant::now() + INTERVAL.mul_f64(rand::random_range(0.9..1.1));
            if let Err(error) = done {
                debug!(%error, "the roster could not be written");
            }
        }
    }

    async fn run_once(&mut self) -> Result<(), db::Error> {
        if !self.looked {
            let names: Vec<String> = self.services.iter().map(|one| one.name.clone()).collect();
            for one in absent(&self.control, &names).await?.iter().filter(|one| one.has_left()) {
                warn!(service.name = %one.name, undelivered = one.undelivered, "{LEFT_OUT}");
            }
            meet(&self.control, &names).await?;
            self.looked = true;
        }
        let counts = self.services.iter().filter_map(|one| {
            let latest = one.depth.borrow();
            let (report, at) = latest.as_ref()?;
            let fresh = SystemTime::now().duration_since(*at).is_ok_and(|age| age <= FRESH);
            fresh.then(|| (one.name.clone(), report.undelivered()))
        });
        let counts = counts.collect();
        self.write(counts).await
    }

    /// Counts all services once more, at a stop, for at most [`LAST_COUNT`]. Whoever does not answer keeps the count he has.
    pub async fn last_count(&self) {
        let counting = async {
            let each = self.services.iter().map(|one| async {
                let rows = depth::undelivered(&one.pool, LAST_COUNT.mul_f64(0.7)).await;
                rows.ok().map(|rows| (one.name.clone(), rows))
            });
            let counts = join_all(each).await.into_iter().flatten().collect();
            self.write(counts).await
        };
        if let Ok(Err(error)) = tokio::time::timeout(LAST_COUNT, counting).await {
            debug!(%error, "the last count could not be written");
        }
    }

    async fn write(&self, counts: Vec<(String, i64)>) -> Result<(), db::Error> {
        if counts.is_empty() {
            return Ok(());
        }
        let (names, rows): (Vec<String>, Vec<i64>) = counts.into_iter().unzip();
        db::within(LIMIT, async {
            let mut tx = self.control.begin(Begin::Forgettable).await?;
            let counted = sql::count(tx.conn(), &names, &rows).await;
            tx.finish(counted).await
        })
        .await
    }
}

/// What is said of a service that is not in the configuration any more and may have something left.
pub const LEFT_OUT: &str = "a service that the configuration leaves out may have undelivered events, which nobody drains: put it back until it is empty, or take it off with `holdfast forget-service`";
