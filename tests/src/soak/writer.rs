//! A writer: one transaction after the other on its own keys, through links that break, with a note of each.
//!
//! Each transaction writes a row of the writer's own and events by `StageInTx`, by `publish_in_tx`, or both, some of them in a
//! savepoint; and commits, rolls back, or leaves without a word. The next begins only when the last one's session is known to be
//! over, so that "committed before" is a fact.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use holdfast_client::outbox::publish_in_tx;
use holdfast_proto::v1::{ConfirmStagedRequest, Event};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::timeout;
use uuid::Uuid;

use super::ledger::{Batch, Deed, End};
use crate::client::{Client, event, keyed};

/// Keys of one writer.
const KEYS: usize = 3;
/// For one statement. What takes longer is given up, as a service would.
const STATEMENT: Duration = Duration::from_secs(3);
/// For one attempt to stage.
const STAGE: Duration = Duration::from_millis(700);
/// For staging one batch, over all attempts.
const STAGE_IN_ALL: Duration = Duration::from_secs(12);

/// What a service's writers share.
#[derive(Debug)]
pub struct Place {
    /// The service.
    pub service: String,
    /// Its database, through the writers' link.
    pub url: String,
    /// The same past it, for what must be known.
    pub straight: String,
    /// Both replicas.
    pub clients: [Client; 2],
}

/// What all writers share.
#[derive(Debug)]
pub struct Pace {
    /// No more transactions.
    pub stop: AtomicBool,
    /// Events committed so far, by answered COMMITs.
    pub committed: AtomicU64,
    /// The latest sending of a COMMIT that was answered.
    pub fence: Mutex<Option<Instant>>,
    /// When it all began.
    pub begun: Instant,
    /// Events a second, of each writer.
    pub rate: f64,
}

struct Session {
    connection: PgConnection,
    /// Its process and when that began, which together name it for ever.
    backend: (i32, String),
}

/// Works until told to stop; returns what it did.
pub async fn work(place: Arc<Place>, pace: Arc<Pace>, number: usize, seed: u64) -> Vec<Deed> {
    let mut writer =
        Writer { place, pace, number, dice: StdRng::seed_from_u64(seed), session: None, deeds: Vec::new() };
    let mut written = 0_u64;
    while !writer.pace.stop.load(SeqCst) {
        written += writer.transaction().await;
        // Whoever was held up catches up.
        let due = writer.pace.begun + Duration::from_secs_f64(written as f64 / writer.pace.rate);
        tokio::time::sleep_until(due.into()).await;
    }
    writer.deeds
}

struct Writer {
    place: Arc<Place>,
    pace: Arc<Pace>,
    number: usize,
    dice: StdRng,
    session: Option<Session>,
    deeds: Vec<Deed>,
}

/// The session is of no use any more, or the stage was not answered.
struct Broken;

impl Writer {
    /// One transaction, written down; returns how many events it had.
    async fn transaction(&mut self) -> u64 {
        let Some(mut session) = self.session().await else { return 0 };
        let mut deed = Deed { batches: Vec::new(), end: End::Nothing };
        let row = Uuid::now_v7();
        let mut tickets = Vec::new();
        let filled = self.fill(&mut session, row, &mut deed, &mut tickets).await;
        let dice = self.dice.random_range(0..100);
        match filled {
            Err(Broken) => {}
            Ok(()) if dice < 75 => {
                // Now and then it is gone before the answer comes, or before the database has begun.
                let patience = match self.dice.random_range(0..20) {
                    0 => Duration::from_micros(self.dice.random_range(100..3_000)),
                    _ => STATEMENT,
                };
                let sent = Instant::now();
                let commit = session.connection.execute("COMMIT");
                let answered = matches!(timeout(patience, commit).await, Ok(Ok(_)));
                if answered {
                    deed.end = End::Committed;
                    let mut fence = self.pace.fence.lock().unwrap();
                    *fence = (*fence).max(Some(sent));
                } else {
                    let there = over(&self.place.straight, &session.backend, row).await;
                    deed.end = End::Unknown { row: there };
                }
                self.hint(tickets);
                if answered {
                    self.session = Some(session);
                }
            }
            Ok(()) if dice < 88 => {
                if quick(session.connection.execute("ROLLBACK")).await.is_ok() {
                    self.session = Some(session);
                }
            }
            // Leaves without a word.
            Ok(()) => {}
        }
        let number = deed.batches.iter().map(|batch| batch.events.len() as u64).sum();
        if deed.end == End::Committed {
            let kept = deed.batches.iter().filter(|batch| !batch.undone);
            self.pace.committed.fetch_add(kept.map(|batch| batch.events.len() as u64).sum(), SeqCst);
        }
        self.deeds.push(deed);
        number
    }

    async fn session(&mut self) -> Option<Session> {
        if self.session.is_some() {
            return self.session.take();
        }
        let opened = async {
            let mut connection = PgConnection::connect(&self.place.url).await?;
            let name = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
            let backend = sqlx::query_as(name).fetch_one(&mut connection).await?;
            Ok::<_, sqlx::Error>(Session { connection, backend })
        };
        let session = timeout(STATEMENT, opened).await.ok().and_then(Result::ok);
        if session.is_none() {
            // The database is away.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        session
    }

    /// Everything up to the end. What was begun stands in `deed` whatever happens.
    async fn fill(
        &mut self,
        session: &mut Session,
        row: Uuid,
        deed: &mut Deed,
        tickets: &mut Vec<i64>,
    ) -> Result<(), Broken> {
        let connection = &mut session.connection;
        quick(connection.execute("BEGIN")).await?;
        let own = sqlx::query("INSERT INTO app_rows VALUES ($1, 'soak')").bind(row);
        quick(own.execute(&mut *connection)).await?;
        for _ in 0..self.dice.random_range(1..=3) {
            let savepoint = self.dice.random_bool(0.15);
            if savepoint {
                quick(connection.execute("SAVEPOINT s")).await?;
            }
            let first = deed.batches.len();
            if self.dice.random_bool(0.6) {
                let ticket =
                    quick(sqlx::query_scalar("SELECT holdfast.stage_ticket()").fetch_one(&mut *connection))
                        .await?;
                tickets.push(ticket);
                self.stage(ticket, deed).await?;
            } else {
                self.publish(connection, deed).await?;
            }
            if savepoint {
                let undo = self.dice.random_bool(0.5);
                let sql = if undo { "ROLLBACK TO SAVEPOINT s" } else { "RELEASE SAVEPOINT s" };
                quick(connection.execute(sql)).await?;
                deed.batches[first..].iter_mut().for_each(|batch| batch.undone = undo);
            }
        }
        Ok(())
    }

    fn events(&mut self) -> (Vec<Event>, Vec<(Uuid, Option<usize>)>) {
        let mut events = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..self.dice.random_range(1..=6) {
            let key = if self.dice.random_bool(0.9) { Some(self.dice.random_range(0..KEYS)) } else { None };
            let one = match key {
                Some(key) => keyed("soak.happened", &format!("writer-{}-{key}", self.number)),
                None => event("soak.happened"),
            };
            ids.push((Uuid::parse_str(&one.id).expect("an id of ours"), key));
            events.push(one);
        }
        (events, ids)
    }

    /// Stages at one replica or the other until it is answered.
    async fn stage(&mut self, ticket: i64, deed: &mut Deed) -> Result<(), Broken> {
        let (events, ids) = self.events();
        let at = deed.batches.len();
        deed.batches.push(Batch {
            events: ids,
            ticketed: true,
            answered: None,
            unanswered: 0,
            undone: false,
        });
        let until = Instant::now() + STAGE_IN_ALL;
        while Instant::now() < until {
            let client = &self.place.clients[self.dice.random_range(0..2)];
            match timeout(STAGE, client.try_stage(ticket, &events)).await {
                Ok(Ok(_)) => {
                    deed.batches[at].answered = Some(Instant::now());
                    return Ok(());
                }
                // The transaction is over: its session was ended.
                Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => return Err(Broken),
                Ok(Err(_)) | Err(_) => {
                    deed.batches[at].unanswered += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        Err(Broken)
    }

    async fn publish(&mut self, connection: &mut PgConnection, deed: &mut Deed) -> Result<(), Broken> {
        let (events, ids) = self.events();
        let mut batch =
            Batch { events: Vec::new(), ticketed: false, answered: None, unanswered: 0, undone: false };
        for (event, id) in events.iter().zip(ids) {
            let published = timeout(STATEMENT, publish_in_tx(connection, &self.place.service, event)).await;
            if !matches!(published, Ok(Ok(_))) {
                return Err(Broken);
            }
            batch.events.push(id);
        }
        batch.answered = Some(Instant::now());
        deed.batches.push(batch);
        Ok(())
    }

    /// Half of the transactions say that they have ended. Nobody waits for that, and it may get lost.
    fn hint(&mut self, tickets: Vec<i64>) {
        if self.dice.random_bool(0.5) {
            return;
        }
        for ticket in tickets {
            let request = ConfirmStagedRequest { service: self.place.service.clone(), ticket };
            let mut client = self.place.clients[self.dice.random_range(0..2)].clone();
            tokio::spawn(async move { timeout(STAGE, client.raw.confirm_staged(request)).await });
        }
    }
}

async fn quick<T>(statement: impl Future<Output = sqlx::Result<T>>) -> Result<T, Broken> {
    match timeout(STATEMENT, statement).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) | Err(_) => Err(Broken),
    }
}

/// Ends a session of which nobody knows how far its COMMIT came, waits until it is gone, and tells whether the row is there.
async fn over(url: &str, backend: &(i32, String), row: Uuid) -> bool {
    let look = async || {
        let mut connection = PgConnection::connect(url).await?;
        loop {
            let still = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                         WHERE pid = $1 AND backend_start::text = $2";
            let still: i64 =
                sqlx::query_scalar(still).bind(backend.0).bind(&backend.1).fetch_one(&mut connection).await?;
            if still == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let there = "SELECT EXISTS (SELECT 1 FROM app_rows WHERE id = $1)";
        sqlx::query_scalar(there).bind(row).fetch_one(&mut connection).await
    };
    loop {
        // The database may be away, for seconds.
        match timeout(STATEMENT, look()).await {
            Ok(Ok(there)) => return there,
            Ok(Err::<_, sqlx::Error>(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
