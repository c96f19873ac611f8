//! The desk: the drainer's state between two events. What runs (a pass, a settle, a poll), what waits (outcomes, hints), and
//! when to look next. Decides what to start; never waits itself, but for the next event.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::flight::{Done, Flight};
use super::hints::Schedule;
use super::lone::{Next, Turn};
use super::losses::Losses;
use super::outcomes::Outcomes;
use super::{Hint, Shared, pass, settle};
use crate::backoff::Backoff;
use crate::broker::{Publisher, Weather};
use crate::{db, tickets};

/// The loop's state: what runs, what waits, when to look next.
pub(super) struct Desk<P> {
    shared: Arc<Shared>,
    pub flight: Flight<P>,
    pub weather: tokio::sync::watch::Receiver<Weather>,
    resolver: tickets::Hints,
    schedule: Schedule,
    outcomes: Outcomes,
    pub settling: Option<JoinHandle<Settled>>,
    pub passing: Option<JoinHandle<Result<pass::Report, pass::Failure>>>,
    pub polling: Option<JoinHandle<Result<bool, db::Error>>>,
    /// Something may be deliverable.
    pub want_pass: bool,
    /// The next pass also heals leases and settles ended fronts.
    housekeeping: bool,
    /// No pass before.
    not_before: Instant,
    next_poll: Instant,
    next_sweep: Instant,
    losses: Losses,
    /// A batch of which nobody heard whether it was claimed. No pass before it is given back: if it was not, a new claim of its
    /// rows would bear the same generation, and would be given back in its place.
    doubtful: Option<i64>,
    /// Whose turn it is: ordinary rows', or one that must be claimed alone.
    turn: Turn,
    pass_failures: u32,
    /// Most rows of a claim: halved while the database refuses, down to the one row that is at fault.
    claim_at_most: usize,
    /// Passes, or settles, fail: said when it begins and when it ends.
    passes_fail: bool,
    settles_fail: bool,
}

/// A settle's end.
pub(super) struct Settled {
    /// What was written down.
    written: Vec<Done>,
    /// What is still to be.
    left: Vec<Done>,
    outcome: Result<settle::Report, db::Error>,
}

/// A pause that a hint outlasts; in a longer one the resolver is asked.
const HINT_PATIENCE: Duration = Duration::from_millis(20);
/// The resolver looks for work each second, jittered by a tenth.
const LOOKS_EVERY: Duration = Duration::from_millis(1_100);
const PASS_PAUSE: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(10) };

impl<P: Publisher> Desk<P> {
    pub(super) fn new(
        shared: Arc<Shared>,
        flight: Flight<P>,
        weather: tokio::sync::watch::Receiver<Weather>,
        resolver: tickets::Hints,
    ) -> Self {
        let now = Instant::now();
        let sweep = shared.options.sweep;
        Self {
            shared,
            flight,
            weather,
            resolver,
            schedule: Schedule::default(),
            outcomes: Outcomes::new(now),
            settling: None,
            passing: None,
            polling: None,
            want_pass: true,
            housekeeping: true,
            not_before: now,
            next_poll: now,
            next_sweep: now + sweep,
            losses: Losses::default(),
            doubtful: None,
            turn: Turn::default(),
            pass_failures: 0,
            claim_at_most: usize::MAX,
            passes_fail: false,
            settles_fail: false,
        }
    }

    fn fair(&self) -> bool {
        *self.weather.borrow() == Weather::Fair
    }

    /// How many more rows may be claimed before some of those in flight are settled.
    fn room(&self) -> usize {
        self.shared.options.window.saturating_sub(self.flight.unsettled())
    }

    /// Whether a pass may claim: the broker takes messages, the schema is ours, and there is room for enough rows to be worth one.
    fn can_claim(&self) -> bool {
        self.fair()
            && self.shared.pool.gate().is_open()
            && self.doubtful.is_none()
            && self.room() >= (self.shared.options.window / 6).max(1)
    }

    pub(super) fn start_what_can(&mut self) {
        let now = Instant::now();
        if self.settling.is_none() && self.settle_at().is_some_and(|at| now >= at) {
            self.start_settle();
        }
        if self.passing.is_some() {
            return;
        }
        let due = self.schedule.due(now, tickets::MAX_FREE_PER_TX);
        if !self.fair() || now < self.not_before {
            // The verdict is written all the same. A hint that only did not get the lock stands: it is asked again in moments.
            let long = !self.fair() || self.not_before - now > HINT_PATIENCE;
            if long && !due.is_empty() {
                self.schedule.forget(&due);
                self.resolver.ask(due);
            }
            return;
        }
        let next = self.turn.next(self.in_the_air(), self.want_pass);
        let wanted = self.want_pass || !due.is_empty() || next == Next::Alone;
        if self.can_claim() && next != Next::Wait && wanted {
            let alone = next == Next::Alone;
            let order = pass::Order {
                // Who flies alone has no company: the resolver decides these.
                tickets: if alone { Vec::new() } else { due.clone() },
                alone,
                rows: self.room().min(self.shared.options.batch).min(self.claim_at_most),
                only_tickets: !self.want_pass,
                housekeeping: self.housekeeping || now >= self.next_sweep,
                sweep: now >= self.next_sweep,
            };
            if order.sweep {
                self.next_sweep = now + self.shared.options.sweep;
            }
            if alone {
                self.schedule.forget(&due);
                self.resolver.ask(due);
            } else {
                self.want_pass = false;
            }
            self.housekeeping = false;
            self.turn.begins(next);
            self.passing = Some(guarded(pass::run(self.shared.clone(), order)));
        } else if !due.is_empty() {
            self.schedule.forget(&due);
            self.resolver.ask(due);
        }
    }

    fn settle_at(&self) -> Option<Instant> {
        self.outcomes.due_at(self.flight.unsettled())
    }

    /// Rows that may yet end in any way.
    fn in_the_air(&self) -> usize {
        self.flight.unsettled().saturating_sub(self.outcomes.locked())
    }

    fn start_settle(&mut self) {
        let first = self.outcomes.first();
        let batch = self.outcomes.take(Instant::now());
        let shared = self.shared.clone();
        let order = settle::Order { first, ending: self.flight.ending(&batch) };
        self.settling = Some(tokio::spawn(async move {
            let outcome = settle::run(&shared, &batch, &order).await;
            let (written, left) = match &outcome {
                Ok(report) => batch.into_iter().partition(|done| !report.skipped.contains(&done.id)),
                Err(_) => (Vec::new(), batch),
            };
            Settled { written, left, outcome }
        }));
    }

    pub(super) fn collect(&mut self, done: Done) {
        let now = Instant::now();
        let mut next = Some(done);
        // Outcomes come in bursts; what is there is settled together.
        while let Some(done) = next {
            self.note(&done);
            self.outcomes.push(now, done);
            next = self.flight.try_next();
        }
    }

    fn note(&mut self, done: &Done) {
        if done.confirmed() {
            self.losses.over();
        } else if done.lost() && self.fair() {
            self.not_before = self.not_before.max(self.losses.lost(Instant::now()));
            self.want_pass = true;
        }
    }

    pub(super) fn settled(&mut self, settled: Settled) {
        let now = Instant::now();
        match settled.outcome {
            Ok(report) => {
                self.doubtful = self.doubtful.filter(|id| settled.written.iter().all(|row| row.batch != *id));
                self.flight.settled(&settled.written);
                // Somebody has the rest locked; their neighbours are through.
                self.outcomes.settled(now, settled.left);
                self.want_pass |= report.promoted > 0 || report.released > 0 || report.given_back > 0;
                self.housekeeping |= !report.locked;
                self.want_pass |= !report.locked;
                if std::mem::take(&mut self.settles_fail) {
                    info!(service.name = %self.shared.options.service, "outcomes are written again");
                }
            }
            Err(error) => {
                let what = "outcomes cannot be written; they are kept and tried again";
                complain(&mut self.settles_fail, &self.shared, &error, what);
                let refused = matches!(error.kind, db::Kind::Refused | db::Kind::Other);
                if let Some(row) = self.outcomes.failed(now, settled.left, refused) {
                    error!(
                        service.name = %self.shared.options.service,
                        event.id = %row.id,
                        %error,
                        "the database refuses this row's outcome; it is left to its lease"
                    );
                    self.doubtful = self.doubtful.filter(|id| *id != row.batch);
                    self.flight.abandoned(&row);
                }
            }
        }
        // A full window may have been what a pass waited for.
        self.want_pass = true;
    }

    pub(super) fn passed(&mut self, passed: Result<pass::Report, pass::Failure>) {
        let now = Instant::now();
        match passed {
            Ok(report) if !report.locked => {
                // Somebody else passes; what we were hinted at stands.
                self.schedule.stands(now, &report.undecided);
                self.not_before =
                    self.not_before.max(now + Duration::from_millis(rand::random_range(2..=10)));
                self.want_pass = true;
                self.housekeeping |= report.housekeeping;
                if report.sweep {
                    self.next_sweep = now;
                }
            }
            Ok(report) => {
                self.pass_failures = 0;
                self.claim_at_most = self.claim_at_most.saturating_mul(2);
                self.recovered();
                if report.paused {
                    // Verdicts are written all the same.
                    self.schedule.forget(&report.undecided);
                    self.resolver.ask(report.undecided.clone());
                }
                self.schedule.forget(&report.decided);
                if !report.paused {
                    self.schedule.open(now, &report.undecided);
                }
                if let Some(due) = report.lone_waits {
                    self.turn.seen(due);
                }
                self.want_pass |= report.more;
                if report.more {
                    // A decided ticket may have more rows than the pass took along.
                    self.resolver.ask(report.decided);
                }
                if report.sweep_again {
                    self.next_sweep = now;
                    self.want_pass = true;
                }
                if let Some(batch) = report.batch {
                    self.flight.launch(batch, report.started);
                }
            }
            Err(pass::Failure { error, perhaps }) => {
                complain(&mut self.passes_fail, &self.shared, &error, "service database cannot be drained");
                if let Some(batch) = perhaps {
                    self.doubtful = Some(batch.id);
                    self.flight.unsent(batch);
                }
                self.want_pass = true;
                self.housekeeping = true;
                self.pass_failures = self.pass_failures.saturating_add(1);
                self.not_before = now + PASS_PAUSE.after(self.pass_failures);
                if pass::refuses_a_row(&error) {
                    // Not the database's trouble: looked for at once, in halves.
                    self.claim_at_most = (self.claim_at_most.min(self.shared.options.batch) / 2).max(1);
                    self.pass_failures = 0;
                    self.not_before = now + PASS_PAUSE.base / 10;
                }
            }
        }
    }

    pub(super) fn polled(&mut self, polled: Result<bool, db::Error>) {
        match polled {
            Ok(work) => {
                self.recovered();
                self.want_pass |= work;
                self.housekeeping |= work;
            }
            Err(error) => {
                complain(&mut self.passes_fail, &self.shared, &error, "service database cannot be drained")
            }
        }
    }

    pub(super) fn hinted(&mut self, hint: Hint) {
        let now = Instant::now();
        match hint {
            Hint::Staged(ticket) => self.schedule.staged(now, ticket),
            Hint::Confirmed(ticket) => self.schedule.confirmed(now, ticket),
            Hint::StagedNow => self.want_pass = true,
        }
    }

    pub(super) fn wake_at(&self) -> Instant {
        let mut at = self.next_poll;
        if self.passing.is_none() {
            at = self.schedule.next().map_or(at, |next| at.min(next.max(self.not_before)));
            // Foul weather and a full window end by events of their own.
            let next = self.turn.next(self.in_the_air(), self.want_pass);
            if (self.want_pass || self.turn.is_due()) && next != Next::Wait && self.can_claim() {
                at = at.min(self.not_before);
            }
        }
        if self.settling.is_none() {
            at = self.settle_at().map_or(at, |settle| at.min(settle));
        }
        at
    }

    /// The resolver has looked for work in passing. Where a poll is due by the time it will look again, that was the poll.
    pub(super) fn looked(&mut self, work: bool) {
        let now = Instant::now();
        if self.next_poll > now + LOOKS_EVERY {
            return;
        }
        // A little later than the resolver comes again: as long as it does, ours never falls due.
        self.next_poll = now + self.shared.options.poll.mul_f64(rand::random_range(1.2..1.4));
        if !self.too_busy_to_poll(now) {
            self.polled(Ok(work));
        }
    }

    fn too_busy_to_poll(&mut self, now: Instant) -> bool {
        self.want_pass |= now >= self.next_sweep;
        let busy = self.want_pass || self.passing.is_some();
        // Perhaps for hours: what the poll would find is looked for by the next pass.
        self.housekeeping |= busy;
        busy
    }

    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        if now < self.next_poll {
            return;
        }
        self.next_poll = now + self.shared.options.poll.mul_f64(rand::random_range(0.9..1.1));
        if self.too_busy_to_poll(now) {
            return;
        }
        if self.fair() && self.polling.is_none() {
            self.polling = Some(guarded(pass::poll(self.shared.clone())));
        }
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.passes_fail) {
            info!(service.name = %self.shared.options.service, "service database is drained again");
        }
    }

    /// No claims any more; what is on the wire is waited for until `stop_at`, then given up and given back.
    pub(super) async fn stop(mut self, stop_at: Instant) {
        self.flight.no_more();
        if let Some(polling) = self.polling.take() {
            polling.abort();
        }
        // A little longer than the grace: what was given up is still to be written down. Less than what is left to the server's stop,
        // in which pools are still to be closed.
        let end = stop_at + Duration::from_millis(2_500);
        let mut given_up = false;
        loop {
            let settle_at = self.settle_at();
            if self.settling.is_none() && settle_at.is_some_and(|at| Instant::now() >= at) {
                self.start_settle();
            }
            if self.flight.unsettled() == 0 && self.settling.is_none() && self.passing.is_none() {
                return;
            }
            tokio::select! {
                biased;
                Some(done) = self.flight.next() => self.collect(done),
                settled = joined(&mut self.settling) => self.settled(settled),
                () = tokio::time::sleep_until(settle_at.unwrap_or(end)), if self.settling.is_none() => {}
                passed = joined(&mut self.passing) => self.passed(passed),
                () = tokio::time::sleep_until(stop_at), if !given_up => {
                    given_up = true;
                    self.flight.give_up();
                }
                () = tokio::time::sleep_until(end) => {
                    warn!(
                        service.name = %self.shared.options.service,
                        rows = self.flight.unsettled(),
                        "stopped with claims unsettled; their leases will heal them"
                    );
                    return;
                }
            }
        }
    }
}

/// Said when it begins; what follows is the same trouble.
fn complain(failing: &mut bool, shared: &Shared, error: &db::Error, what: &str) {
    shared.pool.gate().failed(error);
    if std::mem::replace(failing, true) {
        debug!(service.name = %shared.options.service, %error, "{what}");
    } else {
        warn!(service.name = %shared.options.service, %error, "{what}");
    }
}

/// Runs a pass or a poll as a task. One that panics is one that failed: the next is tried after a pause, and no other service
/// pays. (A settle that panics has taken outcomes along; then the server stops.)
fn guarded<T: Send + 'static, E: From<db::Error> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> JoinHandle<Result<T, E>> {
    tokio::spawn(async move {
        AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            error!("a pass panicked");
            Err(db::Error::panicked().into())
        })
    })
}

/// Waits for a task if there is one; for ever if there is none. Cancel-safe: the handle stays until it is done.
pub(super) async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> T {
    match task.as_mut() {
        None => std::future::pending().await,
        Some(handle) => {
            let joined = handle.await;
            *task = None;
            match joined {
                Ok(value) => value,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Only we cancel, and then nobody joins.
                Err(_) => std::future::pending().await,
            }
        }
    }
}
