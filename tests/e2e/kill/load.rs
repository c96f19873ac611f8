//! A steady load with a ledger: four callers, each with a key of its own and one transaction after the other, that
//! commit, roll back and leave without a word, for as long as something is being killed; then the accounts are closed.
//!
//! The accounts are exact. An event is expected exactly if its transaction's COMMIT was answered, or, where the answer
//! was lost, if the row that the caller wrote in the same transaction is there.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use holdfast_proto::v1::{ConfirmStagedRequest, Event};
use holdfast_tests::{
    client::{Client, keyed},
    wait::{self, LONG},
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{
    stand::{ORDERS, Place, Stand},
    steps::TYPE,
};

const CALLERS: usize = 4;

/// How a transaction ended, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    /// Rolled back, or left, or broken before its COMMIT was sent.
    Nothing,
    /// The COMMIT was sent and its answer lost.
    Unknown,
}

struct Deed {
    row: Uuid,
    ids: Vec<String>,
    /// The stage was answered, so its rows are counted somewhere.
    staged: bool,
    /// Stages of it that were given up or failed: a sleeping replica may still carry one out.
    unanswered: usize,
    end: End,
}

struct Shared {
    url: String,
    clients: Mutex<[Client; 2]>,
    stop: AtomicBool,
    commits: AtomicUsize,
}

/// The running load.
pub(super) struct Load {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<Vec<Deed>>>,
}

/// The closed accounts.
pub(super) struct Accounts {
    /// Events of committed transactions, by caller, in the order of their commits.
    pub expected: Vec<Vec<String>>,
    /// Answered stages whose transactions did not commit.
    pub discarded: i64,
    /// Stages that were not answered, of transactions that did not commit: their rows may have been there. Also where another
    /// attempt was answered: a replica that found the ticket's transaction open, and slept, inserts the rows again after the
    /// other replica has discarded them, and they are staged twice and discarded twice.
    pub perhaps_discarded: i64,
}

impl Load {
    /// Starts it, on both replicas by turns.
    pub(super) fn start(stand: &Stand) -> Self {
        let place = stand.place();
        let shared = Arc::new(Shared {
            url: place.database.url(),
            clients: Mutex::new([stand.front_client(place), stand.standby_client(place)]),
            stop: AtomicBool::new(false),
            commits: AtomicUsize::new(0),
        });
        let callers = (0..CALLERS).map(|i| tokio::spawn(work(shared.clone(), i))).collect();
        Self { shared, callers }
    }

    /// Tells the callers where the replicas are now.
    pub(super) fn replicas_are(&self, stand: &Stand) {
        let [front, standby] = [stand.front.address(), stand.standby.address()];
        *self.shared.clients.lock().unwrap() = [Client::new(front, ORDERS), Client::new(standby, ORDERS)];
    }

    /// Waits until `more` further transactions were committed.
    pub(super) async fn commits(&self, more: usize) {
        let enough = self.shared.commits.load(SeqCst) + more;
        wait::until(&format!("{enough} commits of the load"), LONG, || async {
            let seen = self.shared.commits.load(SeqCst);
            if seen >= enough { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Ends the load and closes the accounts.
    pub(super) async fn end(self, place: &Place) -> Accounts {
        self.shared.stop.store(true, SeqCst);
        let mut accounts = Accounts { expected: Vec::new(), discarded: 0, perhaps_discarded: 0 };
        let mut connection = place.database.connect().await;
        for caller in self.callers {
            let mut expected = Vec::new();
            for deed in caller.await.unwrap() {
                let committed = match deed.end {
                    End::Committed => true,
                    End::Nothing => false,
                    End::Unknown => {
                        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM app_rows WHERE id = $1)")
                            .bind(deed.row)
                            .fetch_one(&mut connection)
                            .await
                            .unwrap()
                    }
                };
                let number = i64::try_from(deed.ids.len()).unwrap();
                if committed {
                    expected.extend(deed.ids);
                } else {
                    accounts.discarded += if deed.staged { number } else { 0 };
                    accounts.perhaps_discarded += number * i64::try_from(deed.unanswered).unwrap();
                }
            }
            accounts.expected.push(expected);
        }
        connection.close().await.unwrap();
        accounts
    }
}

impl Accounts {
    /// Waits until every expected event has come and nothing moves any more; then nothing else has come, first
    /// deliveries of each key are in order, and the outbox is reconciled. `exact`: no database was killed, so every
    /// answered stage is counted; a killed one may forget rows whose transaction it rolls back.
    pub(super) async fn hold(&self, stand: &Stand, exact: bool) {
        let all: Vec<String> = self.expected.iter().flatten().cloned().collect();
        stand.consumer.wait_for_ids(&all, LONG).await;
        let census = stand.place().settled().await;
        let published = i64::try_from(all.len()).unwrap();
        assert_eq!((census.published, census.rows), (published, published), "{census:?}");
        let gone = census.gone.values().sum::<i64>();
        let least = if exact { self.discarded } else { 0 };
        let most = self.discarded + self.perhaps_discarded;
        assert!((least..=most).contains(&gone), "discarded {gone}, not {least} to {most}: {census:?}");
        let mut first: Vec<String> = Vec::new();
        for id in stand.consumer.ids() {
            if !first.contains(&id) {
                first.push(id);
            }
        }
        assert_eq!(first.len(), all.len(), "different events came");
        for expected in &self.expected {
            let came: Vec<&String> = first.iter().filter(|id| expected.contains(id)).collect();
            assert_eq!(came, expected.iter().collect::<Vec<_>>(), "first deliveries of one key");
        }
        eprintln!("{} events, {gone} discarded, {} deliveries", all.len(), stand.consumer.ids().len());
    }
}

/// One caller: a transaction after the other, each with one to three events under its key.
async fn work(shared: Arc<Shared>, caller: usize) -> Vec<Deed> {
    let mut deeds = Vec::new();
    let mut connection = None;
    for round in 0.. {
        if shared.stop.load(SeqCst) {
            break;
        }
        let mut open = match connection.take() {
            Some(open) => open,
            // The database may be away.
            None => match PgConnection::connect(&shared.url).await {
                Ok(open) => open,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        let events: Vec<Event> = (0..=round % 3).map(|_| keyed(TYPE, &format!("caller-{caller}"))).collect();
        let (deed, goes_on) = transaction(&shared, &mut open, caller + round, &events).await;
        if deed.end == End::Committed {
            shared.commits.fetch_add(1, SeqCst);
        }
        deeds.push(deed);
        if goes_on {
            connection = Some(open);
        }
        // A steady load, not a flood.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    deeds
}

/// One transaction, and whether its connection can be used again.
async fn transaction(
    shared: &Shared,
    connection: &mut PgConnection,
    turn: usize,
    events: &[Event],
) -> (Deed, bool) {
    let mut deed = Deed {
        row: Uuid::now_v7(),
        ids: events.iter().map(|event| event.id.clone()).collect(),
        staged: false,
        unanswered: 0,
        end: End::Nothing,
    };
    let Ok(ticket) = begin(connection, deed.row).await else { return (deed, false) };
    (deed.staged, deed.unanswered) = stage(shared, ticket, turn, events).await;
    if !deed.staged || turn % 7 == 6 {
        // Leaves without a word.
        return (deed, false);
    }
    if turn % 4 == 3 {
        let alive = connection.execute("ROLLBACK").await.is_ok();
        return (deed, alive);
    }
    let committed = connection.execute("COMMIT").await.is_ok();
    deed.end = if committed { End::Committed } else { End::Unknown };
    if turn.is_multiple_of(2) {
        let request = ConfirmStagedRequest { service: ORDERS.to_owned(), ticket };
        // A hint; whoever is dead or asleep need not hear it, and nobody waits for that.
        let mut client = client(shared, turn);
        tokio::spawn(async move { client.raw.confirm_staged(request).await });
    }
    (deed, committed)
}

async fn begin(connection: &mut PgConnection, row: Uuid) -> sqlx::Result<i64> {
    connection.execute("BEGIN").await?;
    sqlx::query("INSERT INTO app_rows VALUES ($1, 'load')").bind(row).execute(&mut *connection).await?;
    sqlx::query_scalar("SELECT holdfast.stage_ticket()").fetch_one(connection).await
}

/// Stages, at one replica or the other, until it is answered; `false` when the transaction is over. And how many attempts had
/// no answer.
async fn stage(shared: &Shared, ticket: i64, turn: usize, events: &[Event]) -> (bool, usize) {
    for attempt in 0..2_000 {
        let limit = Duration::from_millis(500);
        let client = client(shared, turn + attempt);
        match tokio::time::timeout(limit, client.try_stage(ticket, events)).await {
            Ok(Ok(_)) => return (true, attempt),
            Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => return (false, attempt),
            Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    (false, 2_000)
}

fn client(shared: &Shared, turn: usize) -> Client {
    shared.clients.lock().unwrap()[turn % 2].clone()
}
