//! A service's pool: lazy, named, and clean.
//!
//! Connects on first use, so that an unreachable database delays nobody. A connection whose transaction was left open
//! (a cancelled BEGIN, a dropped future) is closed, and should one ever come back open it is rolled back in the round trip
//! of the next BEGIN ([`Begin`]), and a lone statement writes nothing on it; one that met a read-only server is closed. Does not: keep a connection alive through a
//! fail-over; the next borrower gets a new one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::conn::Loans;
use super::{Answer, Begin, Conn, Error, Gate, Pulse, Read, Tx, lone};
use crate::metrics;

/// How to reach one database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user@host:port/database`.
    pub url: String,
    /// Most connections this pool opens. A unit of work uses one and never waits for a second while it has it.
    pub max_connections: u32,
    /// Whether statements are prepared by name. Not behind a pooler that lends connections by the transaction.
    pub prepared_statements: bool,
    /// How long to wait for a free connection, connecting included. Keep it below the RPC deadline.
    pub acquire_timeout: Duration,
}

/// A pool for one service's database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: PgPool,
    /// Whether statements are prepared by name.
    named: bool,
    loans: Loans,
    /// Why no connection came, when that was last asked.
    reason: Arc<Mutex<Option<(Instant, Error)>>>,
    pulse: Pulse,
    gate: Gate,
    metrics: Option<metrics::Pool>,
}

/// Every statement of ours reaches its rows by an index, and is planned once for good. Planned while the outbox was empty it
/// would read the whole table, until statistics say otherwise: a minute later, or never. (Disabled paths count as infinitely
/// dear, and dear plans would be compiled.)
pub(super) const PLANNER: [(&str, &str); 4] =
    [("enable_seqscan", "off"), ("enable_hashjoin", "off"), ("enable_mergejoin", "off"), ("jit", "off")];

/// How long to wait for the reason why no connection came; comes on top of the time that was waited for one.
const REASON_PATIENCE: Duration = Duration::from_secs(1);

/// What all connections of ours have in common.
pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions, Error> {
    // Statements and their times are metrics; their text could carry what must not be logged.
    Ok(PgConnectOptions::from_str(url)?.disable_statement_logging())
}

impl Pool {
    /// Makes the pool; opens no connection.
    ///
    /// # Errors
    /// The URL cannot be parsed.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let mut connect = connect_options(&options.url)?.application_name("holdfast");
        if options.prepared_statements {
            // (A pooler refuses connections with options of their own.)
            connect = connect.options(lone::session()).options(PLANNER);
        } else {
            connect = connect.statement_cache_capacity(0);
        }
        let inner = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .idle_timeout(Duration::from_secs(300))
            .max_lifetime(Duration::from_secs(1800))
            // A ping before each loan is a round trip; a dead connection shows at the first statement just as well.
            .test_before_acquire(false)
            .connect_lazy_with(connect);
        Ok(Self {
            inner,
            named: options.prepared_statements,
            loans: Loans::default(),
            reason: Arc::default(),
            pulse: Pulse::default(),
            gate: Gate::default(),
            metrics: None,
        })
    }

    /// The same pool, which tells these metrics what is waited for.
    #[must_use]
    pub fn measured(self, metrics: metrics::Pool) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The database's signs of life.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Whether its schema is one that we can work with.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Brings the metrics up to date that are only looked at.
    pub fn refresh_metrics(&self) {
        let Some(metrics) = &self.metrics else { return };
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        metrics.open.set(i64::from(self.size()));
        metrics.idle.set(gauge(self.idle()));
        metrics.in_use.set(gauge(self.loans.count()));
    }

    /// Begins a transaction of the given kind.
    ///
    /// After a restart or fail-over of the database every idle connection is dead, or leads to a server that refuses
    /// writes. A BEGIN that fails on one has done nothing, so the next one is tried, each once and a new one at last.
    ///
    /// # Errors
    /// No connection in time, or the server refused.
    pub async fn begin(&self, kind: Begin) -> Result<Tx, Error> {
        let mut stale = self.inner.options().get_max_connections();
        loop {
            match Tx::begin(self.acquire().await?, kind).await {
                Err(error) if stale > 0 && error.another_connection_may_do() => stale -= 1,
                begun => return begun,
            }
        }
    }

    /// As [`Pool::begin`], and asks `questions` in the same round trip: statements without parameters, one after the other,
    /// each with a snapshot of its own. The answers come in their order.
    ///
    /// # Errors
    /// As [`Pool::begin`], or a question's.
    pub async fn begin_asking(&self, kind: Begin, questions: &[String]) -> Result<(Tx, Vec<Answer>), Error> {
        let mut stale = self.inner.options().get_max_connections();
        loop {
            match Tx::begin_asking(self.acquire().await?, kind, questions).await {
                Err(error) if stale > 0 && error.another_connection_may_do() => stale -= 1,
                begun => return begun,
            }
        }
    }

    /// One connection for autocommitted reads.
    ///
    /// # Errors
    /// No connection in time.
    pub async fn read(&self) -> Result<Read, Error> {
        Read::begin(self.acquire().await?).await
    }

    /// A connection, or why there is none: a refused or starved connect is tried again until the time is over, and only
    /// "it took too long" would be left of it.
    pub(super) async fn acquire(&self) -> Result<Conn, Error> {
        let begun = Instant::now();
        let acquired = {
            let _waiting = self.metrics.as_ref().map(metrics::Pool::waits);
            self.inner.acquire().await
        };
        if let Some(metrics) = &self.metrics {
            metrics.acquired(begun.elapsed(), acquired.is_ok());
        }
        match acquired {
            Err(sqlx::Error::PoolTimedOut) => Err(self.why_none().await),
            acquired => Ok(Conn::lent(acquired?, &self.loans, self.named, self.pulse.clone())),
        }
    }

    async fn why_none(&self) -> Error {
        let timed_out = Error::from(sqlx::Error::PoolTimedOut);
        // All are in use: there is nothing to ask, and no connection to ask with.
        if self.loans.count() >= self.inner.options().get_max_connections() as usize {
            return timed_out;
        }
        let asked = tokio::time::timeout(REASON_PATIENCE, async {
            // One at a time; who waited for another one's answer takes it for his own.
            let mut last = self.reason.lock().await;
            if let Some((at, reason)) = last.as_ref()
                && at.elapsed() < REASON_PATIENCE
            {
                return Some(reason.clone());
            }
            match self.inner.connect_options().connect().await {
                Err(error) => {
                    let reason = Error::from(error);
                    *last = Some((Instant::now(), reason.clone()));
                    Some(reason)
                }
                Ok(conn) => {
                    // It works now, and the next one will get one. It may not even answer a farewell.
                    let _ = conn.close().await;
                    None
                }
            }
        });
        asked.await.ok().flatten().unwrap_or(timed_out)
    }

    /// Whether its connections are ours alone, so that what a session has stays with it.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    /// Whether one may be kept for a reader that comes each second: a return costs a round trip, as much as what he reads.
    /// With fewer than three it would be missed; behind a pooler it would be a transaction that stays open.
    pub fn spares_one(&self) -> bool {
        self.named && self.inner.options().get_max_connections() >= 3
    }

    /// Connections open now.
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// Connections open and not lent.
    pub fn idle(&self) -> usize {
        self.inner.num_idle()
    }

    /// Closes the pool, waiting at most `limit` for lent connections.
    pub async fn close(&self, limit: Duration) {
        // Whoever still holds one is ended with the process; its transaction is rolled back by the server.
        let _ = tokio::time::timeout(limit, self.inner.close()).await;
    }
}
