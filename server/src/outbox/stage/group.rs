//! The group insert: what waits for the same service goes into one multi-row insert and one commit, which are one statement
//! and one round trip. No timer: a group is
//! whatever arrived while the last one ran. What a group cannot take is done again alone, so that one bad request never
//! fails its neighbours. A group holds one kind: bound to tickets, or to nothing; they do not commit alike.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::super::sql;
use super::rows::rows_of;
use super::{Options, Outcome, Refused, Request, alone};
use crate::db::{self, Begin, Kind, Pool};
use crate::metrics::ServiceMetrics;

/// Most events of one insert: a transaction of a stage ends soon.
const MAX_GROUP_EVENTS: usize = 2_000;
/// Most bytes of one insert, but for a single request: the statement must stay far below its time limit.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// Requests that are done again alone, at the same time. With the group itself three of the service's connections.
const MAX_ALONE: usize = 2;

/// A service's staging worker.
pub struct Worker {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    waiting: VecDeque<Request>,
}

struct Shared {
    pool: Pool,
    options: Options,
    metrics: ServiceMetrics,
    alone: Arc<Semaphore>,
}

/// How a group ended.
enum Group {
    /// Committed, all of it.
    Staged,
    /// Nothing was written: these, by index, must be looked at alone.
    NotThese(Vec<usize>),
}

impl Worker {
    pub(super) fn new(
        pool: Pool,
        options: Options,
        metrics: ServiceMetrics,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        let alone = Arc::new(Semaphore::new(MAX_ALONE));
        Self {
            shared: Arc::new(Shared { pool, options, metrics, alone }),
            requests,
            waiting: VecDeque::new(),
        }
    }

    /// Works until `shutdown`, then finishes what it has taken on and refuses the rest.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let tracker = TaskTracker::new();
        loop {
            if self.waiting.is_empty() {
                let mut arrived = Vec::new();
                let n = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => break,
                    n = self.requests.recv_many(&mut arrived, self.shared.options.max_group) => n,
                };
                if n == 0 {
                    break;
                }
                self.waiting.extend(arrived);
            }
            while let Ok(request) = self.requests.try_recv() {
                self.waiting.push_back(request);
                if self.waiting.len() >= self.shared.options.max_group {
                    break;
                }
            }
            let group = self.next_group();
            self.shared.clone().stage_group(group, &tracker).await;
        }
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            request.answer(Err(Refused::ShuttingDown));
        }
        for request in self.waiting {
            request.answer(Err(Refused::ShuttingDown));
        }
        tracker.close();
        tracker.wait().await;
    }

    /// Takes from the front; an id that is in the group already waits for the next one.
    fn next_group(&mut self) -> Vec<Request> {
        let mut ids = HashSet::new();
        let mut group: Vec<Request> = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        let mut later = VecDeque::new();
        for request in self.waiting.drain(..) {
            let fits = group.is_empty()
                || (events + request.events.len() <= MAX_GROUP_EVENTS
                    && bytes + request.size <= MAX_GROUP_BYTES);
            let fresh = request.events.iter().all(|event| !ids.contains(&event.id));
            let alike = group.first().is_none_or(|first| first.begin() == request.begin());
            if fits && fresh && alike && group.len() < self.shared.options.max_group {
                ids.extend(request.events.iter().map(|event| event.id));
                events += request.events.len();
                bytes += request.size;
                group.push(request);
            } else {
                // Its ids count as taken, so that a third request of the same id does not overtake it.
                ids.extend(request.events.iter().map(|event| event.id));
                later.push_back(request);
            }
        }
        self.waiting = later;
        group
    }
}

impl Shared {
    async fn stage_group(self: Arc<Self>, mut group: Vec<Request>, tracker: &TaskTracker) {
        while !group.is_empty() {
            match db::within(self.options.limit, self.try_group(&group)).await {
                Ok(Group::Staged) => {
                    for request in group {
                        let outcomes = vec![Outcome::Staged; request.events.len()];
                        count(&self.metrics, &request, &outcomes);
                        request.answer(Ok(outcomes));
                    }
                    return;
                }
                Ok(Group::NotThese(indices)) => {
                    let (aside, rest): (Vec<_>, Vec<_>) =
                        group.into_iter().enumerate().partition(|(i, _)| indices.contains(i));
                    aside.into_iter().for_each(|(_, request)| self.clone().alone(request, tracker));
                    group = rest.into_iter().map(|(_, request)| request).collect();
                }
                Err(error) if worth_redoing(&error) => {
                    group.into_iter().for_each(|request| self.clone().alone(request, tracker));
                    return;
                }
                Err(error) => {
                    for request in group {
                        self.metrics.stage.refused("database");
                        request.answer(Err(Refused::Database(error.clone())));
                    }
                    return;
                }
            }
        }
    }

    fn alone(self: Arc<Self>, request: Request, tracker: &TaskTracker) {
        tracker.spawn(async move {
            let Ok(_permit) = self.alone.acquire().await else { return };
            let answer = alone::stage(&self.pool, &self.options, &self.metrics, &request).await;
            match &answer {
                Ok(outcomes) => count(&self.metrics, &request, outcomes),
                Err(refused) => self.metrics.stage.refused(label(refused)),
            }
            request.answer(answer);
        });
    }

    async fn try_group(&self, group: &[Request]) -> Result<Group, db::Error> {
        let Some(first) = group.first() else { return Ok(Group::Staged) };
        let events = group.iter().flat_map(|r| r.events.iter().map(|event| (r.ticket, event)));
        let rows = rows_of(events, &self.options.source, None);
        let lone = self.pool.lone(first.begin()).await?;
        let by_itself = lone.is_autocommit();
        let answer = match insert(lone, first, &rows).await {
            // After a restart or fail-over of the database all idle connections lead nowhere; beginning a transaction walks
            // over them. If the first attempt was carried out after all, its rows are there, and who asked for them is told
            // "duplicate".
            Err(lost) if by_itself && lost.another_connection_may_do() => {
                let again = async {
                    let tx = self.pool.begin(first.begin()).await?;
                    insert(tx.into(), first, &rows).await
                };
                again.await.map_err(|error| error.after(&lost))?
            }
            answer => answer?,
        };
        if answer.inserted == i64::try_from(rows.ids.len()).unwrap_or(i64::MAX) {
            return Ok(Group::Staged);
        }
        let unbound: HashSet<i64> = answer.unbound.into_iter().collect();
        let taken: HashSet<Uuid> = answer.taken.into_iter().collect();
        let in_the_way = |r: &Request| {
            r.ticket.is_some_and(|ticket| unbound.contains(&ticket))
                || r.events.iter().any(|event| taken.contains(&event.id))
        };
        let those: Vec<usize> =
            group.iter().enumerate().filter(|(_, r)| in_the_way(r)).map(|(i, _)| i).collect();
        // Nobody is in the way, and yet something is missing: each for himself will hear of it.
        Ok(Group::NotThese(if those.is_empty() { (0..group.len()).collect() } else { those }))
    }
}

async fn insert(
    mut lone: db::Lone,
    first: &Request,
    rows: &sql::NewRows,
) -> Result<sql::GroupInsert, db::Error> {
    let durable = first.begin() == Begin::StageNow;
    let done = sql::stage_group(&mut lone, rows, durable).await;
    lone.finish(done).await
}

/// Whether a failed group may be the fault of one of its requests.
fn worth_redoing(error: &db::Error) -> bool {
    // A statement's time-out may be due to a neighbour's size.
    let too_long = error.sqlstate.as_deref() == Some("57014");
    (too_long || matches!(error.kind, Kind::Contended | Kind::Refused | Kind::Other))
        && error.certainly_not_applied()
}

/// Counts what became of a request's events, by type and outcome.
fn count(metrics: &ServiceMetrics, request: &Request, outcomes: &[Outcome]) {
    let mut counts: HashMap<(&str, &'static str), u64> = HashMap::new();
    for (event, outcome) in std::iter::zip(request.events.iter(), outcomes) {
        let outcome = match outcome {
            Outcome::Staged => "staged",
            Outcome::Duplicate => "duplicate",
        };
        *counts.entry((&event.event_type, outcome)).or_default() += 1;
    }
    for ((event_type, outcome), events) in counts {
        metrics.stage.staged(event_type, outcome, events);
    }
}

fn label(refused: &Refused) -> &'static str {
    match refused {
        Refused::TicketNotOpen => "ticket_not_open",
        Refused::TicketRolledBack => "ticket_rolled_back",
        Refused::Conflict(_) => "conflict",
        Refused::Contended(_) | Refused::Busy => "contended",
        Refused::Overloaded => "overloaded",
        Refused::ShuttingDown => "shutting_down",
        Refused::NoAnswer => "internal",
        Refused::Database(_) => "database",
    }
}
