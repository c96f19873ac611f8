//! The drainer: one task a service and replica. Claims under the service's lock, publishes with no lock and no transaction,
//! stamps.
//!
//! Guarantees: nothing is stamped that the broker did not confirm and route; an event of a key is sent only after its
//! predecessor was confirmed; a claim that outlives its lease changes nothing any more; the broker's absence burns no
//! attempts. Does not: decide commits (that is asked of the database), or hold anything while it waits for the broker.
//!
//! Three things run at once and meet at the [`desk`]: a *pass* ([`pass`], at most one), the *flight* ([`flight`], what
//! is on the wire) and *settling* ([`settle`], at most one). Wake-ups: hints about tickets ([`hints`]), rows the resolver
//! kept, rows promoted by a settle, and a jittered poll as the floor. Design, section 4.

mod desk;
mod flight;
mod hints;
mod lone;
mod losses;
mod outcomes;
mod parking;
mod pass;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Looks;
use super::pause::Seen;
use super::sql::Blocks;
use crate::backoff::Backoff;
use crate::broker::Publisher;
use crate::db::Pool;
use crate::metrics::ServiceMetrics;
use crate::tickets;
use desk::{Desk, joined};
use flight::Flight;

/// How a service is drained.
#[derive(Debug, Clone)]
pub struct Options {
    /// The service: `app_id` of its messages.
    pub service: String,
    /// Who claims, for `claimed_by`: unique to this process.
    pub instance: String,
    /// How long a claim is good for. Rows not on the wire by half of it are given back.
    pub lease: Duration,
    /// The floor: how often to look without a hint. Jittered by a tenth.
    pub poll: Duration,
    /// Most rows of one claim.
    pub batch: usize,
    /// Most rows claimed and not settled: while some wait for their confirms, the next are claimed and others stamped.
    pub window: usize,
    /// Most rows on the wire. More make a broker no faster, and a slow one's confirms come too late.
    pub on_wire: usize,
    /// Most bytes of one claim, as stored.
    pub batch_bytes: usize,
    /// Whether an unroutable event counts as published.
    pub unroutable_accept: bool,
    /// Whether an unroutable event holds later ones of its key back.
    pub unroutable_blocks: bool,
    /// Whether a parked event holds later ones of its key back.
    pub parked_blocks: bool,
    /// Waits after a refusal or time-out.
    pub retry: Backoff,
    /// Waits after a return.
    pub unroutable_retry: Backoff,
    /// How long open confirms are waited for when the server stops.
    pub stop_grace: Duration,
    /// Most time for one transaction.
    pub limit: Duration,
    /// How often missed promotions are looked for.
    pub sweep: Duration,
}

impl Options {
    /// The defaults for a service.
    pub fn new(service: String, instance: String) -> Self {
        Self {
            service,
            instance,
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            batch: 1_000,
            window: 3_000,
            on_wire: 1_000,
            // With at most four claims in memory this keeps a full drain well below 200 MiB.
            batch_bytes: 8 * 1024 * 1024,
            unroutable_accept: false,
            unroutable_blocks: true,
            parked_blocks: true,
            retry: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(60) },
            unroutable_retry: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(900) },
            stop_grace: Duration::from_secs(20),
            limit: Duration::from_secs(25),
            sweep: Duration::from_secs(60),
        }
    }
}

impl Options {
    pub(super) fn blocks(&self) -> Blocks {
        Blocks { unroutable: self.unroutable_blocks, parked: self.parked_blocks }
    }
}

/// What callers know about tickets, for the drainer. Never believed, never blocking; a full queue drops the hint.
#[derive(Debug, Clone)]
pub struct Hints(mpsc::Sender<Hint>);

#[derive(Debug, Clone, Copy)]
enum Hint {
    Staged(i64),
    Confirmed(i64),
    StagedNow,
}

impl Hints {
    /// Events were staged under this ticket: ask soon, and again.
    pub fn staged(&self, ticket: i64) {
        // A dropped hint loses nothing: the resolver's walk finds the row within its interval.
        let _ = self.0.try_send(Hint::Staged(ticket));
    }

    /// Events were staged that wait for no commit: look now.
    pub fn staged_now(&self) {
        let _ = self.0.try_send(Hint::StagedNow);
    }

    /// The caller says that it has committed: ask now.
    pub fn confirmed(&self, ticket: i64) {
        let _ = self.0.try_send(Hint::Confirmed(ticket));
    }
}

/// Drains one service.
pub struct Drainer<P> {
    shared: Arc<Shared>,
    publisher: Arc<P>,
    hints: mpsc::Receiver<Hint>,
    /// Asks for tickets while no pass can run.
    resolver: tickets::Hints,
    /// Told when the resolver made rows deliverable.
    resolved: Arc<Notify>,
    /// What the resolver saw of our work: mostly it is the poll.
    looks: Looks,
}

/// What passes and settles need.
struct Shared {
    pool: Pool,
    options: Options,
    metrics: ServiceMetrics,
    /// The pause of the drain, as last seen.
    paused: Seen,
    /// Serialises this replica's own pass and settle before they meet at the database's lock.
    turn: Mutex<()>,
}

impl<P: Publisher> Drainer<P> {
    /// A drainer, and the way to hint it.
    pub fn new(
        pool: Pool,
        publisher: Arc<P>,
        options: Options,
        metrics: ServiceMetrics,
        resolver: tickets::Hints,
        resolved: Arc<Notify>,
        looks: Looks,
    ) -> (Self, Hints) {
        let (sender, hints) = mpsc::channel(8192);
        let shared =
            Arc::new(Shared { pool, options, metrics, paused: looks.paused.clone(), turn: Mutex::new(()) });
        (Self { shared, publisher, hints, resolver, resolved, looks }, Hints(sender))
    }

    /// Works until `shutdown`; then claims nothing, finishes confirms and stamps for at most the grace time, gives the rest
    /// back, and returns.
    pub async fn run(self, shutdown: CancellationToken) {
        let flight = Flight::new(self.publisher.clone(), &self.shared.options, self.shared.metrics.clone());
        let mut desk =
            Desk::new(self.shared.clone(), flight, self.publisher.weather(), self.resolver.clone());
        let (mut hints, mut looks) = (self.hints, self.looks.work);
        let mut gate = self.shared.pool.gate().changes();
        // Asked apart: whoever is in the middle of something with a database that stands still hears of a stop late, and would have
        // the whole grace from then on.
        let asked = shutdown.clone();
        let stopping = AbortOnDropHandle::new(tokio::spawn(async move {
            asked.cancelled().await;
            Instant::now()
        }));
        loop {
            desk.start_what_can();
            let wake = tokio::time::sleep_until(desk.wake_at());
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(done) = desk.flight.next() => desk.collect(done),
                settled = joined(&mut desk.settling) => desk.settled(settled),
                passed = joined(&mut desk.passing) => desk.passed(passed),
                polled = joined(&mut desk.polling) => desk.polled(polled),
                Some(hint) = hints.recv() => desk.hinted(hint),
                () = self.resolved.notified() => desk.want_pass = true,
                Ok(()) = looks.changed() => desk.looked(*looks.borrow_and_update()),
                Ok(()) = desk.weather.changed() => desk.want_pass = true,
                Ok(()) = gate.changed() => desk.want_pass = true,
                () = wake => desk.tick(),
            }
        }
        // It cannot panic; and if the runtime has ended it, the rest of the grace is nobody's any more.
        let stopped = stopping.await.unwrap_or_else(|_| Instant::now());
        desk.stop(stopped + self.shared.options.stop_grace).await;
    }
}
