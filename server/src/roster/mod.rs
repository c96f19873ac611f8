//! The roster: which services there were, and what each had left undelivered when that was last counted. A service that is taken
//! out of the configuration with events left would never be drained again, and nobody would notice: so a server does not start
//! without it (design, section 11).
//!
//! Guarantees: a service that was ever served is on the roster until `holdfast forget-service`; its count is at most half a
//! minute older than the last replica's death, and taken anew at an orderly stop; one that is older than that (its database did not
//! answer) counts as unknown. A service that was renamed is one taken out and one added. Does not: hold up staging or draining while the control database is away (then it only warns, once that is back),
//! or know how a service's database is reached.

mod sql;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::db::{self, Begin, Kind, Pool};
use crate::outbox::depth;

pub use sql::QUERIES;

/// How often counts are written. Jittered by a tenth.
const INTERVAL: Duration = Duration::from_secs(30);
/// The first time comes soon: a service is unknown until then.
const FIRST: Duration = Duration::from_secs(5);
/// An older measurement is of a database that does not answer: what was known of it stands.
const FRESH: Duration = Duration::from_secs(60);
/// By so much a count may be older than the last sign of who served it: twice what lies between two counts, and its measurement's
/// own age. A zero from before a database went away says nothing of what was staged since.
const STALE: Duration = Duration::from_secs(120);
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
    /// Whether that is so lately, by the database's clock, that one may still have it.
    pub served: bool,
}

impl Known {
    /// Whether something may be left.
    pub fn has_left(&self) -> bool {
        self.undelivered != Some(0) || self.is_stale()
    }

    /// Whether it was served on, uncounted, after it was last counted.
    fn is_stale(&self) -> bool {
        self.counted_at.is_none_or(|at| self.last_seen - at > STALE)
    }
}

/// In words.
impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, undelivered, counted_at, last_seen, .. } = self;
        match (undelivered, counted_at) {
            (Some(rows), Some(at)) if self.is_stale() => {
                write!(f, "{name} ({rows} undelivered, counted at {at}, and served until {last_seen})")
            }
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

/// What is said of the roster, so that it is said once.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Absent services were looked for.
    pub looked: bool,
    /// These are left out, and may have something left.
    pub left_out: HashSet<String>,
    /// The control database refuses to say.
    pub refused: bool,
}

impl Told {
    /// The roster could not be read or written: a line if that is no outage, which others tell of.
    pub fn failed(&mut self, error: &db::Error) {
        let passing =
            matches!(error.kind, Kind::Unavailable | Kind::TimedOut | Kind::ReadOnly | Kind::Contended);
        // 55000: the database takes no connections.
        let away = passing || error.sqlstate.as_deref() == Some("55000");
        if away || std::mem::replace(&mut self.refused, true) {
            debug!(%error, "the roster could not be kept");
        } else {
            warn!(%error, "the roster of services cannot be kept; a service left out with events would go unnoticed");
        }
    }
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
    told: Told,
}

impl Roster {
    /// Of these services, after what was told at the start.
    pub fn new(control: Pool, services: Vec<Counted>, told: Told) -> Self {
        Self { control, services: Arc::new(services), told }
    }

    /// Works until `shutdown`. Does not complain of a control database that is away: others do.
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
            match done {
                Ok(_) => self.told.refused = false,
                Err(error) => self.told.failed(&error),
            }
        }
    }

    /// Looks for services left out, and writes who is served and what each has. Tells the names it has warned of.
    ///
    /// # Errors
    /// The control database's.
    pub async fn run_once(&mut self) -> Result<Vec<String>, db::Error> {
        let names: Vec<String> = self.services.iter().map(|one| one.name.clone()).collect();
        let mut left = absent(&self.control, &names).await?;
        left.retain(Known::has_left);
        let mut warned = Vec::new();
        for one in &left {
            // Another replica may have one that this one does not know yet, or not any more: that is a roll-out. Not at the start,
            // which would have been refused.
            let elsewhere = one.served && self.told.looked;
            if !elsewhere && self.told.left_out.insert(one.name.clone()) {
                warn!(service.name = %one.name, undelivered = one.undelivered, "{LEFT_OUT}");
                warned.push(one.name.clone());
            }
        }
        self.told.left_out.retain(|name| left.iter().any(|one| one.name == *name));
        self.told.looked = true;
        // Counted or not: who is served and cannot be counted must not pass for empty.
        meet(&self.control, &names).await?;
        let counts = self.services.iter().filter_map(|one| {
            let latest = one.depth.borrow();
            let (report, at) = latest.as_ref()?;
            let fresh = SystemTime::now().duration_since(*at).is_ok_and(|age| age <= FRESH);
            fresh.then(|| (one.name.clone(), report.undelivered()))
        });
        let counts = counts.collect();
        self.write(counts).await?;
        Ok(warned)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_counts_only_if_it_is_as_old_as_the_last_sign_of_who_served_it() {
        let seen = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(100_000);
        for (undelivered, age, left) in [
            (Some(0), 0, false),
            (Some(0), 119, false),
            (Some(0), 121, true),
            (Some(3), 0, true),
            (None, 0, true),
        ] {
            let known = Known {
                name: "billing".to_owned(),
                undelivered,
                counted_at: undelivered.map(|_| seen - Duration::from_secs(age)),
                last_seen: seen,
                served: false,
            };
            assert_eq!(known.has_left(), left, "{known}");
        }
    }
}
