//! What a slice of a replay does: copies a part of its set, or sends some events of it, or clears away what is left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::pause;
use super::sql::{self, Fate, Row};
use crate::broker::{Outcome, Outgoing, Publisher, Weather};
use crate::db::{self, Pool};
use crate::jobs::{Kind, Progress, Step, Turn};

/// Events that are copied, or cleared away, in one transaction.
const COPIED: i64 = 10_000;
/// Events on the wire at once: a small part of what live events may have there.
const IN_FLIGHT: usize = 50;
/// About so many bytes of events in memory at once.
const BYTES: i64 = 32 * 1024 * 1024;
/// So often a nack is answered with the same event again.
const NACKS: u32 = 3;
const AFTER_NACK: Duration = Duration::from_millis(200);
/// While the broker is away, or the drain is paused.
const WAIT: Duration = Duration::from_secs(1);
/// From a stop on, for confirms that are on their way.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How one service's events are sent again.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name.
    pub service: String,
    /// How old an event may be.
    pub horizon: Option<Duration>,
    /// Whether what no queue takes counts as sent.
    pub accept_unroutable: bool,
}

/// The replays' lane of one service.
pub struct Lane<P> {
    pool: Pool,
    publisher: Arc<P>,
    paused: pause::Seen,
    options: Options,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Sent,
    Failed(String),
    /// Not sent, or its fate is unknown through no fault of its own.
    Left,
}

/// What a slice did.
#[derive(Debug, Default)]
pub struct Done {
    /// Rows that are to leave the lane.
    seqs: Vec<i64>,
    sent: Vec<Uuid>,
    failed: Vec<(i64, String)>,
    expired: i64,
    gone: i64,
    /// Nothing up to this place is left.
    sent_to: Option<i64>,
    /// There may be no more.
    maybe_last: bool,
    wait: Duration,
}

impl<P: Publisher> Lane<P> {
    /// Over this database, with a publisher of its own.
    pub fn new(pool: Pool, publisher: Arc<P>, paused: pause::Seen, options: Options) -> Self {
        Self { pool, publisher, paused, options }
    }

    async fn run(&self, turn: &Turn) -> Result<Done, db::Error> {
        let fair = *self.publisher.weather().borrow() == Weather::Fair;
        if !fair || self.paused.get().is_some() || turn.closing.is_cancelled() {
            return Ok(Done { wait: WAIT, ..Done::default() });
        }
        let mut read = self.pool.read().await?;
        let rows = sql::next(read.conn(), turn.id, turn.rows, self.options.horizon, BYTES).await;
        let rows = read.finish(rows).await?;
        let asked = usize::try_from(turn.rows).unwrap_or(0);
        let mut done = Done { maybe_last: rows.len() < asked, ..Done::default() };
        let places: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        let mut goes = Vec::new();
        for row in rows {
            match row.fate {
                Fate::Goes => goes.push(row),
                Fate::Expired => {
                    done.expired += 1;
                    done.seqs.push(row.seq);
                }
                Fate::Gone => {
                    done.gone += 1;
                    done.seqs.push(row.seq);
                }
            }
        }
        let mut ends: HashMap<i64, End> = HashMap::new();
        let mut flying = futures::stream::iter(chains(goes))
            .map(|chain| self.chain(turn, chain))
            .buffer_unordered(IN_FLIGHT);
        while let Some(chain) = flying.next().await {
            for (row, end) in chain {
                match &end {
                    End::Sent => {
                        done.seqs.push(row.0);
                        done.sent.push(row.1);
                    }
                    End::Failed(error) => done.failed.push((row.0, error.clone())),
                    End::Left => done.wait = WAIT,
                }
                ends.insert(row.0, end);
            }
        }
        let left = |seq: &&i64| ends.get(*seq) != Some(&End::Left);
        done.sent_to = places.iter().take_while(left).last().copied();
        done.maybe_last &= ends.values().all(|end| *end != End::Left);
        Ok(done)
    }

    /// Events of one key, one after the other's end. Once one is left, those behind it are.
    async fn chain(&self, turn: &Turn, chain: Vec<Row>) -> Vec<((i64, Uuid), End)> {
        let mut ends = Vec::with_capacity(chain.len());
        let mut left = false;
        for row in chain {
            let place = (row.seq, row.event_id);
            let end = if left { End::Left } else { self.send(turn, row).await };
            left = end == End::Left;
            ends.push((place, end));
        }
        ends
    }

    async fn send(&self, turn: &Turn, row: Row) -> End {
        let message = Outgoing {
            event_type: row.event_type,
            message_id: row.event_id.to_string(),
            app_id: self.options.service.clone(),
            timestamp: u64::try_from(row.created_at).unwrap_or(0),
            traceparent: row.traceparent,
            tracestate: row.tracestate,
            replay: Some(turn.id),
            body: row.envelope,
        };
        let mut nacks = 0;
        loop {
            if turn.closing.is_cancelled() || Instant::now() >= turn.until {
                return End::Left;
            }
            let outcome = tokio::select! {
                outcome = self.publisher.publish(message.clone()) => outcome,
                () = async {
                    turn.closing.cancelled().await;
                    tokio::time::sleep(LAST_WORDS).await;
                } => Outcome::Lost,
            };
            return match outcome {
                Outcome::Confirmed => End::Sent,
                Outcome::Returned(_) if self.options.accept_unroutable => End::Sent,
                Outcome::Returned(words) => failed(&format!("unroutable: {words}")),
                Outcome::Nacked => {
                    nacks += 1;
                    if nacks < NACKS {
                        tokio::time::sleep(AFTER_NACK).await;
                        continue;
                    }
                    failed("the broker refused the message (nack)")
                }
                Outcome::TimedOut => failed("no confirm in time; it may have been delivered"),
                Outcome::Refused(words) => failed(&format!("the broker refused it: {words}")),
                Outcome::Unsendable(reason) => failed(&format!("no broker could carry it: {reason}")),
                Outcome::Lost => End::Left,
            };
        }
    }
}

/// Text refuses U+0000, and must not grow a row without bound.
fn failed(text: &str) -> End {
    End::Failed(text.chars().filter(|c| *c != '\0').take(500).collect())
}

/// Rows in `seq` order, one chain a key; those without one each for themselves.
fn chains(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut chains: Vec<Vec<Row>> = Vec::new();
    let mut by_key: HashMap<String, usize> = HashMap::new();
    for row in rows {
        match row.ordering_key.as_deref() {
            None | Some("") => chains.push(vec![row]),
            Some(key) => match by_key.get(key).and_then(|at| chains.get_mut(*at)) {
                Some(chain) => chain.push(row),
                None => {
                    by_key.insert(key.to_owned(), chains.len());
                    chains.push(vec![row]);
                }
            },
        }
    }
    chains
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

impl<P: Publisher> Kind for Lane<P> {
    const NAME: &'static str = super::KIND;
    type Done = Done;

    async fn work(&self, turn: &Turn) -> Result<Done, db::Error> {
        match turn.step {
            Step::Run => self.run(turn).await,
            // Copying and clearing are statements of the transaction that counts them.
            Step::Prepare | Step::Clear => Ok(Done::default()),
        }
    }

    async fn write(&self, conn: &mut db::Conn, turn: &Turn, done: &Done) -> Result<Progress, db::Error> {
        match turn.step {
            Step::Prepare => {
                let Some(copied) = sql::copy(conn, turn.id, COPIED).await? else {
                    // A second time, after a pause.
                    return Ok(Progress { finished: true, ..Progress::default() });
                };
                let pruned = if copied.whole { (turn.matched - copied.copied).max(0) } else { 0 };
                Ok(Progress { pruned, finished: copied.whole, ..Progress::default() })
            }
            Step::Run => {
                if !done.failed.is_empty() {
                    let (seqs, errors): (Vec<i64>, Vec<String>) = done.failed.iter().cloned().unzip();
                    sql::failed(conn, turn.id, &seqs, &errors).await?;
                }
                if !done.seqs.is_empty() || done.sent_to.is_some() {
                    sql::settled(conn, turn.id, &done.seqs, done.sent_to).await?;
                }
                if !done.sent.is_empty() {
                    sql::sent(conn, turn.id, &done.sent).await?;
                }
                let finished = done.maybe_last && sql::next(conn, turn.id, 1, None, 0).await?.is_empty();
                Ok(Progress {
                    done: count(done.sent.len()),
                    failed: count(done.failed.len()),
                    expired: done.expired,
                    pruned: done.gone,
                    finished,
                    wait: done.wait,
                })
            }
            Step::Clear => {
                let cleared = sql::clear(conn, turn.id, COPIED).await?;
                Ok(Progress { finished: cleared < COPIED.unsigned_abs(), ..Progress::default() })
            }
        }
    }
}
