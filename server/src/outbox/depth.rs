//! How much lies in a service's outbox, in which state, since when: for metrics and for whoever asks.
//!
//! Guarantees: one read every few seconds, which costs the same whether a thousand rows wait or millions: exact as long as at
//! most [`EXACT`] rows are unpublished, PostgreSQL's own estimates above. Each replica measures for itself: none depends on
//! another's health, and they all see the same rows. Does not: complain (the resolver does, about the same database).
//! Design, section 14.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::sql;
use crate::db::{self, Pool};
use crate::metrics;

/// So many unpublished rows are counted one by one: some ten thousand pages at worst, tens of milliseconds.
pub const EXACT: i64 = 5_000;
/// So many keys with rows set aside are counted.
const MOST_KEYS: i64 = 1_000;

/// How an outbox is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often. Jittered by a tenth.
    pub interval: Duration,
    /// Most time for one measurement.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { interval: Duration::from_secs(15), limit: Duration::from_secs(5) }
    }
}

/// The states, with what a pending row waits for apart.
const STATES: [&str; 8] =
    ["unresolved", "held", "parked", "in_flight", "unroutable", "backing_off", "aside", "pending"];

/// The tables that are measured.
const TABLES: [&str; 8] = [
    "event_inbox",
    "event_outbox",
    "hold_outcome",
    "hold_watch",
    "outbox_claim",
    "outbox_tally",
    "retention_cycle",
    "ticket",
];

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows and the age of the oldest, by state; every state is there.
    pub states: BTreeMap<&'static str, State>,
    /// Whether the rows are PostgreSQL's estimates, because there are more than [`EXACT`].
    pub estimated: bool,
    /// Rows that committed over 15 minutes ago, are not held and not published.
    pub beyond_grace: i64,
    /// Keys with rows set aside.
    pub keys_blocked: i64,
    /// Bytes with all that belongs to it, and estimated rows, by table.
    pub tables: BTreeMap<String, (i64, i64)>,
}

/// Rows of one state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// How many.
    pub rows: i64,
    /// How old the oldest is, in seconds.
    pub oldest_seconds: i64,
}

impl Report {
    fn of(measured: &[sql::Measured]) -> Self {
        let mut report = Self::default();
        let mut indexes: BTreeMap<&str, i64> = BTreeMap::new();
        report.states.extend(STATES.iter().map(|state| (*state, State::default())));
        for line in measured {
            match line.kind.as_str() {
                "state" => {
                    if let Some(state) = report.states.get_mut(line.name.as_str()) {
                        *state = State { rows: line.rows, oldest_seconds: line.size.max(0) };
                    }
                    report.beyond_grace += line.late;
                }
                "keys" => report.keys_blocked = line.rows,
                "index" => {
                    indexes.insert(&line.name, line.rows);
                }
                // What else lies in our schema is somebody's copy, and no label of ours.
                _ if TABLES.contains(&line.name.as_str()) => {
                    report.tables.insert(line.name.clone(), (line.size, line.rows));
                }
                _ => {}
            }
        }
        let counted: i64 = report.states.values().map(|state| state.rows).sum();
        report.estimated = counted >= EXACT;
        if report.estimated {
            report.estimate(&indexes);
        }
        report
    }

    /// What the partial indexes hold, where that is more than was counted.
    fn estimate(&mut self, indexes: &BTreeMap<&str, i64>) {
        let index = |name: &str| indexes.get(name).copied().unwrap_or(0);
        let unroutable = index("event_outbox_unroutable");
        let in_flight = self.states.get("in_flight").map_or(0, |state| state.rows);
        let estimates = [
            ("unresolved", index("event_outbox_unresolved")),
            ("held", index("event_outbox_held")),
            ("parked", index("event_outbox_parked")),
            ("unroutable", unroutable),
            // Rows that no queue took back off, too.
            ("backing_off", index("event_outbox_backing_off") + index("event_outbox_lone") - unroutable),
            ("aside", index("event_outbox_aside")),
            // What is in flight stays in the claim's path.
            ("pending", index("event_outbox_fresh") - in_flight),
        ];
        for (name, rows) in estimates {
            if let Some(state) = self.states.get_mut(name) {
                state.rows = state.rows.max(rows);
            }
        }
    }

    /// Rows that are not published, whatever they wait for.
    pub fn undelivered(&self) -> i64 {
        self.states.values().map(|state| state.rows).sum()
    }

    /// Rows of a state.
    pub fn rows(&self, state: &str) -> i64 {
        self.states.get(state).map_or(0, |state| state.rows)
    }
}

/// Measures how many rows of an outbox are not published, for at most `limit`.
///
/// # Errors
/// The database's.
pub async fn undelivered(pool: &Pool, limit: Duration) -> Result<i64, db::Error> {
    Ok(measure(pool, limit).await?.undelivered())
}

async fn measure(pool: &Pool, limit: Duration) -> Result<Report, db::Error> {
    let measured = db::within(limit, async {
        let mut read = pool.read().await?;
        let measured = sql::depth(read.conn(), EXACT, MOST_KEYS).await;
        read.finish(measured).await
    });
    Ok(Report::of(&measured.await?))
}

/// What was measured last, and when; `None` before the first time.
pub type Latest = watch::Receiver<Option<(Report, SystemTime)>>;

/// Measures one service's outbox.
pub struct Depth {
    pool: Pool,
    options: Options,
    metrics: metrics::Depth,
    latest: watch::Sender<Option<(Report, SystemTime)>>,
}

impl Depth {
    /// The worker, and what it measured last.
    pub fn new(pool: Pool, options: Options, metrics: metrics::Depth) -> (Self, Latest) {
        let (latest, seen) = watch::channel(None);
        (Self { pool, options, metrics, latest }, seen)
    }

    /// Works until `shutdown`. The first time comes soon, at another moment for each service.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut next = Instant::now() + self.options.interval.mul_f64(rand::random_range(0.0..0.2));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep_until(next) => {}
            }
            next = Instant::now() + self.options.interval.mul_f64(rand::random_range(0.9..1.1));
            let measured = tokio::select! {
                biased;
                // Not waited for: a stalled database would hold up the stop.
                () = shutdown.cancelled() => return,
                measured = self.run_once() => measured,
            };
            if let Err(error) = measured {
                debug!(%error, "an outbox could not be measured");
            }
        }
    }

    /// Measures once.
    ///
    /// # Errors
    /// The database's; then what was measured before stands, and its time with it.
    pub async fn run_once(&self) -> Result<Report, db::Error> {
        let report = measure(&self.pool, self.options.limit).await?;
        self.tell(&report);
        self.latest.send_replace(Some((report.clone(), SystemTime::now())));
        Ok(report)
    }

    fn tell(&self, report: &Report) {
        for (name, state) in &report.states {
            self.metrics.state(name, state.rows, state.oldest_seconds);
        }
        for (name, (bytes, rows)) in &report.tables {
            self.metrics.table(name, *bytes, *rows);
        }
        self.metrics.tickets.set(report.tables.get("ticket").map_or(0, |(_, rows)| *rows));
        self.metrics.beyond_grace.set(report.beyond_grace);
        self.metrics.keys_blocked.set(report.keys_blocked);
        self.metrics.rows_behind.set(report.rows("aside"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.metrics.measured.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, name: &str, rows: i64, size: i64, late: i64) -> sql::Measured {
        sql::Measured { kind: kind.into(), name: name.into(), rows, size, late }
    }

    #[test]
    fn few_rows_are_exact_whatever_the_estimates_say() {
        let report = Report::of(&[
            line("state", "pending", 3, 20, 1),
            line("state", "parked", 2, 4_000, 2),
            line("keys", "", 1, 0, 0),
            line("index", "event_outbox_fresh", 900, 0, 0),
            line("table", "ticket", 7, 8_192, 0),
        ]);
        assert!(!report.estimated);
        assert_eq!((report.rows("pending"), report.rows("parked"), report.rows("held")), (3, 2, 0));
        assert_eq!(report.states["parked"].oldest_seconds, 4_000);
        assert_eq!((report.beyond_grace, report.keys_blocked), (3, 1));
        assert_eq!(report.tables["ticket"], (8_192, 7));
    }

    #[test]
    fn beyond_what_is_counted_the_estimates_stand_and_never_below_what_was_seen() {
        let report = Report::of(&[
            line("state", "pending", EXACT - 10, 20, 0),
            line("state", "in_flight", 10, 1, 0),
            line("index", "event_outbox_fresh", 1_000_010, 0, 0),
            line("index", "event_outbox_backing_off", 70, 0, 0),
            line("index", "event_outbox_lone", 5, 0, 0),
            line("index", "event_outbox_unroutable", 60, 0, 0),
        ]);
        assert!(report.estimated);
        assert_eq!((report.rows("pending"), report.rows("in_flight")), (1_000_000, 10));
        assert_eq!((report.rows("backing_off"), report.rows("unroutable")), (15, 60));
        let stale = Report::of(&[line("state", "pending", EXACT, 20, 0)]);
        assert_eq!(stale.rows("pending"), EXACT, "tables that were never analysed estimate nothing");
    }
}
