//! The real outbox, and beside it what the test knows: who has committed, what the broker took, what was confirmed to a claim
//! that was still valid.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use holdfast_client::outbox::publish_in_tx;
use holdfast_proto::v1::Event;
use holdfast_server::{
    broker::Outcome,
    outbox::{parked, stage},
};
use holdfast_tests::{
    caller::Caller,
    client::{event, keyed},
    database::Database,
    reconcile::Census,
    wait::{self, LONG},
};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    How, Op,
    replica::{Replica, SERVICE, operator},
    wire::Book,
};

pub(super) const CALLERS: usize = 3;

/// A transaction that is open.
#[derive(Default)]
struct Open {
    ticket: Option<i64>,
    /// What was staged under the ticket last, to be staged again.
    last: Option<Event>,
    staged: Vec<Known>,
    inserted: Vec<Known>,
    undone: usize,
}

/// An event: its key (0 is keyless), and the step that wrote it.
#[derive(Clone)]
struct Known {
    id: Uuid,
    key: usize,
    written: usize,
}

/// A committed event, and the step of its commit.
struct Committed {
    event: Known,
    step: usize,
}

pub(super) struct World {
    database: Database,
    /// The test's own session.
    sql: tokio::sync::Mutex<PgConnection>,
    replicas: [Replica; 2],
    instances: usize,
    book: Arc<Mutex<Book>>,
    operator: parked::Desk,
    callers: Vec<Caller>,
    open: Vec<Option<Open>>,
    /// Rows that were ever in the table.
    staged: usize,
    committed: Vec<Committed>,
    /// Confirmed while the claim was not known to be outdated.
    confirmed: HashSet<Uuid>,
    step: usize,
}

/// What a snapshot of the outbox shows.
#[derive(sqlx::FromRow)]
struct Snapshot {
    /// Keys with rows of more than one claim in flight.
    split_keys: i64,
    /// Rows in flight that are in no open claim: no lease would ever heal them.
    strays: i64,
    /// Rows with marks of two states at once.
    mixed: i64,
    published: Vec<Uuid>,
}

/// A row's claim.
#[derive(Debug, sqlx::FromRow)]
struct Claim {
    generation: i64,
    holder: Option<String>,
    published: bool,
}

impl World {
    pub(super) async fn new() -> Self {
        let database = Database::service().await;
        let book = Arc::new(Mutex::new(Book::default()));
        let replica = |n: usize| Replica::start(&database.url(), format!("replica-{n}"), book.clone());
        let replicas = [replica(0), replica(1)];
        let mut callers = Vec::new();
        for _ in 0..CALLERS {
            callers.push(Caller::connect(&database.url()).await);
        }
        Self {
            sql: database.connect().await.into(),
            operator: operator(&database.url()),
            database,
            replicas,
            instances: 2,
            book,
            open: callers.iter().map(|_| None).collect(),
            callers,
            staged: 0,
            committed: Vec::new(),
            confirmed: HashSet::new(),
            step: 0,
        }
    }

    /// Does one thing, and looks whether all still holds.
    pub(super) async fn apply(&mut self, op: &Op) {
        self.step += 1;
        match *op {
            Op::Stage { caller, replica, key } => self.stage(caller, replica, key).await,
            Op::StageAgain { caller, replica } => self.stage_again(caller, replica).await,
            Op::Undone { caller, replica, key } => self.undone(caller, replica, key).await,
            Op::Publish { caller, key } => self.publish(caller, key).await,
            Op::Commit { caller, hint } => self.commit(caller, hint).await,
            Op::RollBack { caller, hint } => self.roll_back(caller, hint).await,
            Op::Answer { which, how, calm } => {
                if calm {
                    self.calm().await;
                }
                self.answer(which, how).await;
            }
            Op::Crash { replica } => self.crash(replica),
            Op::LeasesRunOut { calm } => {
                if calm {
                    self.calm().await;
                }
                // Under the drain lock: a row claimed anew in between would be moved without its batch.
                self.sql("BEGIN").await;
                self.sql("SELECT pg_advisory_xact_lock(1213156420, 1)").await;
                self.sql(
                    "WITH due AS MATERIALIZED (
                         SELECT id FROM holdfast.event_outbox WHERE claimed_at IS NOT NULL AND published_at IS NULL
                         ORDER BY id FOR UPDATE
                     ), claims AS (
                         UPDATE holdfast.outbox_claim SET claimed_at = claimed_at - interval '2 hours'
                     )
                     UPDATE holdfast.event_outbox AS o SET claimed_at = o.claimed_at - interval '2 hours' FROM due
                     WHERE o.id = due.id AND o.claimed_at IS NOT NULL AND o.published_at IS NULL",
                )
                .await;
                self.sql("COMMIT").await;
            }
            Op::BackOffsRunOut => {
                self.sql(
                    "WITH due AS MATERIALIZED (
                         SELECT id FROM holdfast.event_outbox WHERE next_attempt_at IS NOT NULL ORDER BY id FOR UPDATE
                     )
                     UPDATE holdfast.event_outbox AS o SET next_attempt_at = now() FROM due
                     WHERE o.id = due.id AND o.next_attempt_at IS NOT NULL",
                )
                .await;
            }
            Op::Unpark => self.unpark().await,
        }
        self.check().await;
    }

    async fn unpark(&self) {
        let all = parked::Filter { event_type: None, ordering_key: None };
        let page = self.operator.list(&all, None, 100).await.unwrap();
        let ids: Vec<Uuid> = page.events.iter().map(|one| one.id).collect();
        if !ids.is_empty() {
            let answer = self.operator.unpark(&ids).await.unwrap();
            assert_eq!(answer.acted.len(), ids.len(), "nobody else is at parked rows");
        }
    }

    async fn opened(&mut self, caller: usize) -> &mut Open {
        if self.open[caller].is_none() {
            self.callers[caller].begin().await;
        }
        self.open[caller].get_or_insert_default()
    }

    fn known(&self, event: &Event, key: usize) -> Known {
        Known { id: Uuid::parse_str(&event.id).unwrap(), key, written: self.step }
    }

    async fn stage(&mut self, caller: usize, replica: usize, key: usize) {
        self.opened(caller).await;
        let open = self.open[caller].as_mut().unwrap();
        let ticket = match open.ticket {
            Some(ticket) => ticket,
            None => *open.ticket.insert(self.callers[caller].ticket().await),
        };
        let event = made(key);
        assert_eq!(self.replicas[replica].stage(ticket, &event).await, stage::Outcome::Staged);
        let known = self.known(&event, key);
        let open = self.open[caller].as_mut().unwrap();
        open.staged.push(known);
        open.last = Some(event);
        self.staged += 1;
    }

    /// A lost reply: the same stage once more, at either replica.
    async fn stage_again(&mut self, caller: usize, replica: usize) {
        if let Some(Open { ticket: Some(ticket), last: Some(event), .. }) = &self.open[caller] {
            let again = self.replicas[replica].stage(*ticket, event).await;
            assert_eq!(again, stage::Outcome::Duplicate);
        }
    }

    /// Staged in a savepoint that is rolled back.
    async fn undone(&mut self, caller: usize, replica: usize, key: usize) {
        self.opened(caller).await;
        self.callers[caller].sql("SAVEPOINT s").await;
        let ticket = self.callers[caller].ticket().await;
        assert_eq!(self.replicas[replica].stage(ticket, &made(key)).await, stage::Outcome::Staged);
        self.callers[caller].sql("ROLLBACK TO SAVEPOINT s").await;
        self.open[caller].as_mut().unwrap().undone += 1;
        self.staged += 1;
    }

    async fn publish(&mut self, caller: usize, key: usize) {
        self.opened(caller).await;
        let event = made(key);
        publish_in_tx(self.callers[caller].connection(), SERVICE, &event).await.unwrap();
        let known = self.known(&event, key);
        self.open[caller].as_mut().unwrap().inserted.push(known);
    }

    async fn commit(&mut self, caller: usize, hint: usize) {
        let Some(open) = self.open[caller].take() else { return };
        self.staged += open.inserted.len();
        let mut events = open.staged;
        events.extend(open.inserted);
        // From here on it may be visible.
        self.book.lock().unwrap().may_go.extend(events.iter().map(|event| event.id));
        self.callers[caller].commit().await;
        let step = self.step;
        self.committed.extend(events.into_iter().map(|event| Committed { event, step }));
        self.hint(open.ticket, hint);
    }

    async fn roll_back(&mut self, caller: usize, hint: usize) {
        let Some(open) = self.open[caller].take() else { return };
        self.callers[caller].rollback().await;
        self.hint(open.ticket, hint);
    }

    /// 0 and 1: that replica is told. 2: nobody.
    fn hint(&self, ticket: Option<i64>, hint: usize) {
        if let (Some(ticket), Some(replica)) = (ticket, self.replicas.get(hint)) {
            replica.hints.confirmed(ticket);
        }
    }

    async fn answer(&mut self, which: usize, how: How) {
        let sending = {
            let mut book = self.book.lock().unwrap();
            if book.flying.is_empty() {
                return;
            }
            let at = which % book.flying.len();
            let sending = book.flying.remove(at);
            if how.taken() {
                book.taken.push(sending.id);
            }
            sending
        };
        let (id, instance, sent_under) = (sending.id, sending.instance.clone(), sending.generation);
        // Generations only grow: what is outdated now stays so.
        let outdated = sent_under != self.claim(id).await.map(|now| now.generation);
        if how == How::Confirmed && !outdated {
            self.confirmed.insert(id);
        }
        let Some(replica) = self.replicas.iter().find(|replica| replica.instance == instance) else { return };
        let stale = &replica.metrics.drain.stale_stamps;
        let before = stale.get();
        sending.answer(how.outcome());
        // Until it is written down, or came too late and was counted as such; or was written down all the same, which the check
        // will find.
        let this = &self;
        wait::until(&format!("the outcome of {id} to be settled"), LONG, || async move {
            let now = this.claim(id).await.unwrap();
            let over = now.generation != sent_under.unwrap_or(-1) || now.holder.is_none();
            if stale.get() > before || now.published || (over && !outdated) { Ok(()) } else { Err(now) }
        })
        .await;
    }

    async fn claim(&self, id: Uuid) -> Option<Claim> {
        sqlx::query_as(
            "SELECT claim_generation AS generation, claimed_by AS holder, published_at IS NOT NULL AS published
             FROM holdfast.event_outbox WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&mut *self.sql.lock().await)
        .await
        .unwrap()
    }

    fn crash(&mut self, replica: usize) {
        let instance = format!("replica-{}", self.instances);
        self.instances += 1;
        self.replicas[replica] = Replica::start(&self.database.url(), instance, self.book.clone());
    }

    /// Time passes for rows, by the database's clock.
    async fn sql(&self, sql: &'static str) {
        sqlx::query(sql).execute(&mut *self.sql.lock().await).await.unwrap();
    }

    /// Waits until the replicas have nothing more to do before somebody answers, commits, or time passes: nothing lies in the
    /// claim's path, every ended transaction is decided, and every front that a living replica has claimed is on the wire.
    async fn calm(&self) {
        let open: usize = self.open.iter().flatten().map(|open| open.staged.len()).sum();
        wait::until("the replicas to come to rest", LONG, || async {
            let mut sql = self.sql.lock().await;
            let (paths, lone, unresolved): (i64, bool, i64) = sqlx::query_as(
                "SELECT count(*) FILTER (WHERE ticket IS NULL AND published_at IS NULL AND parked_at IS NULL
                                           AND (admitted_at IS NULL AND claimed_at IS NULL OR next_attempt_at <= now()
                                                OR claimed_at < now() - interval '1 hour')
                                            OR is_head AND claimed_at IS NULL),
                        coalesce(bool_or(lone_claims >= 2 AND published_at IS NULL), false),
                        count(*) FILTER (WHERE ticket IS NOT NULL)
                 FROM holdfast.event_outbox",
            )
            .fetch_one(&mut *sql)
            .await
            .unwrap();
            let fronts: Vec<(Uuid, String)> = sqlx::query_as(
                "SELECT DISTINCT ON (CASE WHEN ordering_key <> '' THEN ordering_key ELSE id::text END) id, claimed_by
                 FROM holdfast.event_outbox WHERE claimed_at IS NOT NULL AND published_at IS NULL
                 ORDER BY CASE WHEN ordering_key <> '' THEN ordering_key ELSE id::text END, seq",
            )
            .fetch_all(&mut *sql)
            .await
            .unwrap();
            drop(sql);
            let book = self.book.lock().unwrap();
            let flies = |id: Uuid, by: &str| book.flying.iter().any(|one| one.id == id && one.instance == by);
            let lives = |by: &str| self.replicas.iter().any(|replica| replica.instance == by);
            let idle: Vec<_> = fronts.iter().filter(|(id, by)| lives(by) && !flies(*id, by)).collect();
            // A row that must be claimed alone waits for a flight to be empty, and others wait for it.
            let waits = lone && book.flying.iter().any(|one| lives(&one.instance));
            if (paths == 0 || waits) && unresolved == open as i64 && idle.is_empty() {
                Ok(())
            } else {
                Err(format!("{paths} in the path, {unresolved} unresolved, {open} open, {idle:?} not sent"))
            }
        })
        .await;
    }

    /// What holds at every instant.
    async fn check(&self) {
        let mut sql = self.sql.lock().await;
        let census = Census::over(&mut sql).await;
        assert_eq!(census.accounted(), self.staged as i64, "invariant 2: {census:?}");
        let seen: Snapshot = sqlx::query_as(
            "SELECT (SELECT count(*) FROM (
                         SELECT 1 FROM holdfast.event_outbox
                         WHERE claimed_at IS NOT NULL AND published_at IS NULL AND ordering_key <> ''
                         GROUP BY ordering_key HAVING count(DISTINCT (claimed_by, claimed_at)) > 1) AS keys
                    ) AS split_keys,
                    count(*) FILTER (WHERE claimed_at IS NOT NULL AND published_at IS NULL AND NOT EXISTS (
                                         SELECT 1 FROM holdfast.outbox_claim AS c
                                         WHERE c.claimed_at = o.claimed_at AND o.id = ANY (c.ids))) AS strays,
                    count(*) FILTER (WHERE num_nonnulls(published_at, claimed_at, next_attempt_at, ticket, parked_at) > 1
                                        OR claimed_at IS NULL AND claimed_by IS NOT NULL) AS mixed,
                    coalesce(array_agg(id) FILTER (WHERE published_at IS NOT NULL), '{}') AS published
             FROM holdfast.event_outbox AS o",
        )
        .fetch_one(&mut *sql)
        .await
        .unwrap();
        assert_eq!(seen.split_keys, 0, "invariant 4: two valid claims of one key");
        assert_eq!(seen.strays, 0, "a row in flight that is in no open claim");
        assert_eq!(seen.mixed, 0, "invariant 2: a row in two states");
        for id in seen.published {
            assert!(
                self.confirmed.contains(&id),
                "invariant 3: {id} is published without a confirm of its claim"
            );
        }
        let book = self.book.lock().unwrap();
        assert!(book.early.is_empty(), "invariant 1: {:?} published before their COMMIT", book.early);
    }

    /// Ends everything well, and closes the books.
    pub(super) async fn end(mut self) {
        for caller in 0..CALLERS {
            self.step += 1;
            if caller % 2 == 0 {
                self.commit(caller, caller).await;
            } else {
                self.roll_back(caller, 2).await;
            }
        }
        // What is in the hands of the dead, or of those who were told nothing, is given up; then all goes well.
        self.apply(&Op::LeasesRunOut { calm: false }).await;
        for _ in 0..1_000 {
            self.apply(&Op::Unpark).await;
            self.apply(&Op::BackOffsRunOut).await;
            self.calm().await;
            let census = Census::over(&mut *self.sql.lock().await).await;
            if census.moving() + census.parked == 0 {
                break;
            }
            while !self.book.lock().unwrap().flying.is_empty() {
                self.answer(0, How::Confirmed).await;
            }
        }
        self.check().await;
        let census = Census::over(&mut *self.sql.lock().await).await;
        assert_eq!(census.published, self.committed.len() as i64, "invariant 1, lost: {census:?}");
        assert_eq!((census.rows, census.moving()), (census.published, 0), "{census:?}");
        wait::until_equal("open claims", LONG, 0, || {
            self.database.one::<i64>("SELECT count(*) FROM holdfast.outbox_claim")
        })
        .await;
        self.order();
    }

    /// Invariant 4, among what the broker took first.
    fn order(&self) {
        let book = self.book.lock().unwrap();
        let mut first: HashMap<Uuid, usize> = HashMap::new();
        for (place, id) in book.taken.iter().enumerate() {
            first.entry(*id).or_insert(place);
        }
        let mut keys: BTreeMap<usize, Vec<&Committed>> = BTreeMap::new();
        for one in self.committed.iter().filter(|one| one.event.key > 0) {
            keys.entry(one.event.key).or_default().push(one);
        }
        for (key, events) in keys {
            for earlier in &events {
                for later in &events {
                    let (a, b) = (&earlier.event, &later.event);
                    let final_before =
                        earlier.step < b.written || earlier.step == later.step && a.written < b.written;
                    assert!(
                        !final_before || first[&a.id] < first[&b.id],
                        "invariant 4, key {key}: step {} came before step {}",
                        b.written,
                        a.written
                    );
                }
            }
        }
    }
}

fn made(key: usize) -> Event {
    if key == 0 { event("order.placed") } else { keyed("order.placed", &format!("k-{key}")) }
}

impl How {
    /// Whether the broker has it now.
    fn taken(self) -> bool {
        matches!(self, Self::Confirmed | Self::TimedOutTaken | Self::LostTaken)
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::Confirmed => Outcome::Confirmed,
            Self::Nacked => Outcome::Nacked,
            Self::Returned => Outcome::Returned("312 NO_ROUTE".into()),
            Self::TimedOutTaken | Self::TimedOut => Outcome::TimedOut,
            Self::LostTaken | Self::Lost => Outcome::Lost,
        }
    }
}
