//! What is on the wire. Rows of one key that were claimed together form a chain: a follower is sent only after its
//! predecessor was confirmed and not returned, and only with lease time left; any other outcome gives the rest of the chain
//! back unsent. Chains fly side by side.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};
use uuid::Uuid;

use super::super::sql::Claimed;
use super::Options;
use super::pass::Batch;
use crate::broker::{Outcome, Outgoing, Publisher};
use crate::metrics::ServiceMetrics;

/// A claimed row whose time on the wire is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub id: Uuid,
    /// The batch it was claimed in.
    pub batch: i64,
    pub generation: i64,
    /// Failed attempts before this one.
    pub attempts: u32,
    /// Whether it has an ordering key, and so perhaps followers.
    pub keyed: bool,
    pub end: End,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Confirmed and routed (or unroutable, and the service accepts that).
    Published,
    /// No broker could carry it.
    Parked { reason: String },
    /// An attempt failed.
    Failed { error: String, unroutable: bool },
    /// Never sent, or its fate is unknown through no fault of its own.
    GivenBack { lost: bool },
}

impl End {
    /// For the log; the reasons are in the row.
    fn label(&self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Parked { .. } => "parked",
            Self::Failed { .. } => "failed",
            Self::GivenBack { .. } => "given back",
        }
    }

    /// Why no broker could carry it, if so.
    pub(super) fn parked(&self) -> Option<String> {
        if let Self::Parked { reason } = self { Some(reason.clone()) } else { None }
    }
}

impl Done {
    pub(super) fn confirmed(&self) -> bool {
        self.end == End::Published
    }

    pub(super) fn lost(&self) -> bool {
        self.end == End::GivenBack { lost: true }
    }
}

pub(super) struct Flight<P> {
    wire: Arc<Wire<P>>,
    landed: mpsc::UnboundedReceiver<Done>,
    lease: Duration,
    /// Rows that are not settled, by batch.
    batches: HashMap<i64, usize>,
    unsettled: usize,
}

struct Wire<P> {
    publisher: Arc<P>,
    service: String,
    accept_unroutable: bool,
    metrics: ServiceMetrics,
    land: mpsc::UnboundedSender<Done>,
    /// Places on the wire.
    places: Semaphore,
    /// Nothing more is sent.
    closing: CancellationToken,
    /// Not even outcomes are waited for.
    given_up: CancellationToken,
}

impl<P: Publisher> Flight<P> {
    pub(super) fn new(publisher: Arc<P>, options: &Options, metrics: ServiceMetrics) -> Self {
        let (land, landed) = mpsc::unbounded_channel();
        let wire = Arc::new(Wire {
            publisher,
            service: options.service.clone(),
            accept_unroutable: options.unroutable_accept,
            metrics,
            land,
            places: Semaphore::new(options.on_wire),
            closing: CancellationToken::new(),
            given_up: CancellationToken::new(),
        });
        Self { wire, landed, lease: options.lease, batches: HashMap::new(), unsettled: 0 }
    }

    /// Sends claimed rows off. `started`: when their lease began.
    pub(super) fn launch(&mut self, batch: Batch, started: Instant) {
        let Batch { id, rows } = batch;
        self.unsettled += rows.len();
        self.batches.insert(id, rows.len());
        self.wire.metrics.drain.in_flight.set(i64::try_from(self.unsettled).unwrap_or(i64::MAX));
        // Half of the lease for sending, half for the confirm of what was sent last.
        let send_until = started + self.lease / 2;
        for chain in chains(rows) {
            tokio::spawn(self.wire.clone().send_chain(id, chain, send_until));
        }
    }

    /// Rows that may have been claimed: nobody heard whether. They are given back unsent; if they were not, that changes nothing.
    pub(super) fn unsent(&mut self, batch: Batch) {
        self.unsettled += batch.rows.len();
        self.batches.insert(batch.id, batch.rows.len());
        for row in &batch.rows {
            // The receiver is ours.
            let _ = self.wire.land.send(done(batch.id, row, End::GivenBack { lost: false }));
        }
    }

    /// The next row to land; `None` never, as long as this lives.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.landed.recv().await
    }

    pub(super) fn try_next(&mut self) -> Option<Done> {
        self.landed.try_recv().ok()
    }

    /// Rows launched whose outcome is not written down yet.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// The batches whose last rows these are.
    pub(super) fn ending(&self, settling: &[Done]) -> Vec<i64> {
        let mut counts: HashMap<i64, usize> = HashMap::new();
        for done in settling {
            *counts.entry(done.batch).or_default() += 1;
        }
        counts
            .into_iter()
            .filter(|(batch, n)| self.batches.get(batch) == Some(n))
            .map(|(batch, _)| batch)
            .collect()
    }

    /// These rows are written down.
    pub(super) fn settled(&mut self, rows: &[Done]) {
        for row in rows {
            if let Some(left) = self.batches.get_mut(&row.batch) {
                *left -= 1;
                if *left == 0 {
                    self.batches.remove(&row.batch);
                }
            }
        }
        self.unsettled -= rows.len();
        self.wire.metrics.drain.in_flight.set(i64::try_from(self.unsettled).unwrap_or(i64::MAX));
    }

    /// This row cannot be written down: its place is free, its batch stays open until the lease ends.
    pub(super) fn abandoned(&mut self, row: &Done) {
        self.batches.remove(&row.batch);
        self.unsettled -= 1;
        self.wire.metrics.drain.in_flight.set(i64::try_from(self.unsettled).unwrap_or(i64::MAX));
    }

    /// What is not on the wire yet is given back.
    pub(super) fn no_more(&self) {
        self.wire.closing.cancel();
    }

    /// What is on the wire is given back, too, and may be sent twice.
    pub(super) fn give_up(&self) {
        self.wire.given_up.cancel();
    }
}

impl<P: Publisher> Wire<P> {
    async fn send_chain(self: Arc<Self>, batch: i64, chain: Vec<Claimed>, send_until: Instant) {
        let mut broken = false;
        for row in chain {
            let place = if broken { None } else { self.place(send_until).await };
            let done = if place.is_none() {
                broken = true;
                done(batch, &row, End::GivenBack { lost: false })
            } else {
                let done = self.send(batch, row).await;
                broken = !done.confirmed();
                done
            };
            // The receiver goes only with the drainer itself; its claims heal by their lease then.
            let _ = self.land.send(done);
        }
    }

    /// A place on the wire; none if it is too late to send.
    async fn place(&self, send_until: Instant) -> Option<SemaphorePermit<'_>> {
        let place = tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            place = tokio::time::timeout_at(send_until, self.places.acquire()) => place.ok()?.ok(),
        };
        place.filter(|_| Instant::now() < send_until)
    }

    async fn send(&self, batch: i64, mut row: Claimed) -> Done {
        let message = Outgoing {
            event_type: row.event_type.clone(),
            message_id: row.id.to_string(),
            app_id: self.service.clone(),
            timestamp: u64::try_from(row.created_at).unwrap_or(0),
            traceparent: row.traceparent.take(),
            tracestate: row.tracestate.take(),
            replay: None,
            body: row.envelope.take().unwrap_or_default(),
        };
        // A row whose task ended without a word would never be settled, and its place in the window never be free again.
        let publish = AssertUnwindSafe(self.publisher.publish(message)).catch_unwind();
        let outcome = tokio::select! {
            outcome = publish => outcome.unwrap_or_else(|_| {
                error!(service.name = %self.service, event.id = %row.id, "publishing panicked");
                Outcome::Unsendable("publishing it panicked")
            }),
            () = self.given_up.cancelled() => Outcome::Lost,
        };
        let end = match outcome {
            Outcome::Confirmed => End::Published,
            Outcome::Lost => End::GivenBack { lost: true },
            Outcome::Returned(reason) => {
                self.metrics.drain.unroutable(&row.event_type);
                if self.accept_unroutable {
                    End::Published
                } else {
                    self.metrics.drain.publish_failure(&row.event_type, "returned");
                    End::Failed { error: storable(&format!("unroutable: {reason}")), unroutable: true }
                }
            }
            Outcome::Nacked => {
                self.metrics.drain.publish_failure(&row.event_type, "nacked");
                End::Failed { error: "the broker refused the message (nack)".into(), unroutable: false }
            }
            Outcome::TimedOut => {
                self.metrics.drain.publish_failure(&row.event_type, "timed_out");
                End::Failed { error: "no confirm in time".into(), unroutable: false }
            }
            Outcome::Refused(words) => {
                self.metrics.drain.publish_failure(&row.event_type, "refused");
                End::Failed { error: storable(&format!("the broker refused it: {words}")), unroutable: false }
            }
            Outcome::Unsendable(reason) => {
                self.metrics.drain.publish_failure(&row.event_type, "unsendable");
                End::Parked { reason: format!("no broker could carry it: {reason}") }
            }
        };
        debug!(service.name = %self.service, event.id = %row.id, outcome = end.label(), "left the wire");
        done(batch, &row, end)
    }
}

fn done(batch: i64, row: &Claimed, end: End) -> Done {
    Done {
        id: row.id,
        batch,
        generation: row.claim_generation,
        attempts: u32::try_from(row.attempts).unwrap_or(0),
        keyed: row.ordering_key.as_deref().is_some_and(|key| !key.is_empty()),
        end,
    }
}

/// Text refuses U+0000, and one row's error must not fail the settling of a batch; nor may it grow the row without bound.
fn storable(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(500).collect()
}

/// Splits claimed rows, in `seq` order, into chains: one a key; keyless rows each for themselves.
fn chains(claimed: Vec<Claimed>) -> Vec<Vec<Claimed>> {
    let mut chains: Vec<Vec<Claimed>> = Vec::new();
    let mut by_key: HashMap<String, usize> = HashMap::new();
    for row in claimed {
        match row.ordering_key.as_deref() {
            None | Some("") => chains.push(vec![row]),
            Some(key) => match by_key.get(key) {
                Some(i) => chains[*i].push(row),
                None => {
                    by_key.insert(key.to_owned(), chains.len());
                    chains.push(vec![row]);
                }
            },
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::*;
    use crate::broker::Weather;
    use crate::metrics::Metrics;

    /// Answers from a script, and remembers what it was given.
    struct Scripted {
        answers: Mutex<VecDeque<Outcome>>,
        sent: Mutex<Vec<String>>,
    }

    impl Publisher for Scripted {
        async fn publish(&self, message: Outgoing) -> Outcome {
            self.sent.lock().unwrap().push(message.body);
            let answer = self.answers.lock().unwrap().pop_front();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }

        fn weather(&self) -> watch::Receiver<Weather> {
            watch::channel(Weather::Fair).1
        }
    }

    fn row(seq: i64, key: Option<&str>) -> Claimed {
        Claimed {
            id: Uuid::from_u128(seq.unsigned_abs().into()),
            seq,
            goes: true,
            claim_generation: 1,
            attempts: 0,
            ordering_key: key.map(str::to_owned),
            event_type: "t".into(),
            created_at: 0,
            envelope: Some(seq.to_string()),
            traceparent: None,
            tracestate: None,
            batch: Some(1),
        }
    }

    async fn fly(
        rows: Vec<Claimed>,
        answers: Vec<Outcome>,
        accept: bool,
        started: Instant,
    ) -> (Vec<Done>, Vec<String>) {
        let mut options = Options::new("orders".into(), "i".into());
        options.unroutable_accept = accept;
        let publisher = Arc::new(Scripted { answers: Mutex::new(answers.into()), sent: Mutex::default() });
        let metrics = Metrics::new(prometheus::Registry::new()).unwrap().service("orders");
        let mut flight = Flight::new(publisher.clone(), &options, metrics);
        let n = rows.len();
        flight.launch(Batch { id: 1, rows }, started);
        let mut landed = Vec::new();
        while landed.len() < n {
            landed.push(flight.next().await.unwrap());
        }
        let sent = publisher.sent.lock().unwrap().clone();
        (landed, sent)
    }

    #[tokio::test]
    async fn a_follower_is_sent_only_after_its_predecessors_confirm_without_return() {
        for refusal in [Outcome::Nacked, Outcome::Returned("312".into()), Outcome::TimedOut, Outcome::Lost] {
            let rows = vec![row(1, Some("k")), row(2, Some("k")), row(3, Some("k"))];
            let (landed, sent) = fly(rows, vec![Outcome::Confirmed, refusal], false, Instant::now()).await;
            assert_eq!(sent, ["1", "2"], "the third was never sent");
            assert_eq!(landed[0].end, End::Published);
            assert!(landed[1].end != End::Published);
            assert_eq!(landed[2].end, End::GivenBack { lost: false });
        }
    }

    #[tokio::test]
    async fn a_returned_event_is_published_only_where_the_service_accepts_that() {
        let returned = || vec![Outcome::Returned("312 NO_ROUTE".into())];
        let (landed, _) = fly(vec![row(1, None)], returned(), true, Instant::now()).await;
        assert_eq!(landed[0].end, End::Published);
        let (landed, _) = fly(vec![row(1, None)], returned(), false, Instant::now()).await;
        let expected = End::Failed { error: "unroutable: 312 NO_ROUTE".into(), unroutable: true };
        assert_eq!(landed[0].end, expected);
    }

    #[tokio::test]
    async fn a_row_without_lease_time_left_is_given_back_unsent() {
        let started = Instant::now().checked_sub(Duration::from_secs(31)).unwrap();
        let (landed, sent) = fly(vec![row(1, None)], vec![Outcome::Confirmed], false, started).await;
        assert!(sent.is_empty());
        assert_eq!(landed[0].end, End::GivenBack { lost: false });
    }

    #[tokio::test]
    async fn giving_up_ends_a_publish_that_the_broker_never_answers() {
        let options = Options::new("orders".into(), "i".into());
        let publisher = Arc::new(Scripted { answers: Mutex::default(), sent: Mutex::default() });
        let metrics = Metrics::new(prometheus::Registry::new()).unwrap().service("orders");
        let mut flight = Flight::new(publisher, &options, metrics);
        flight.launch(Batch { id: 1, rows: vec![row(1, None)] }, Instant::now());
        flight.no_more();
        flight.give_up();
        assert!(matches!(flight.next().await.unwrap().end, End::GivenBack { .. }));
    }

    #[test]
    fn an_error_text_with_nul_is_made_storable() {
        assert_eq!(storable("a\0b"), "ab");
        assert_eq!(storable(&"x".repeat(10_000)).len(), 500);
    }
}
