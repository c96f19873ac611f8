//! What is broken, and healed again. Each kind comes before any comes twice: they are cards of a shuffled pack.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use rand::{Rng as _, rngs::StdRng, seq::SliceRandom as _};

use super::{ledger::DatabaseKill, stand::Stand};
use crate::chaos::Flow;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9 of a replica, started again.
    ReplicaKilled,
    /// kill -9 of both replicas at once.
    BothReplicasKilled,
    /// SIGTERM of a replica, started again.
    ReplicaStopped,
    /// SIGSTOP, and SIGCONT seconds later, often past the lease.
    ReplicaFrozen,
    /// kill -9 of every process of PostgreSQL.
    DatabaseKilled,
    /// An immediate shutdown of PostgreSQL.
    DatabaseShutDown,
    /// `pg_terminate_backend` of random sessions, the replicas' and the writers'.
    SessionsEnded,
    /// kill -9 of RabbitMQ.
    BrokerKilled,
    /// RabbitMQ's memory alarm.
    MemoryAlarm,
    /// RabbitMQ's disk alarm.
    DiskAlarm,
    /// A replica's way to its databases is slow.
    DatabaseSlow,
    /// … stands still, connections open.
    DatabaseStalled,
    /// … loses its connections.
    DatabaseCut,
    /// … is away for a while.
    DatabaseAway,
    /// A replica's way to the broker is slow.
    BrokerSlow,
    /// … stands still.
    BrokerStalled,
    /// … lets messages through and loses the confirms.
    ConfirmsLost,
    /// … loses its connection.
    BrokerCut,
    /// A replica's answers to its callers are lost.
    AnswersLost,
    /// The writers' connections break in the middle of an answer: of a COMMIT, perhaps.
    CommitAnswersLost,
    /// The writers' way to their databases is slow.
    WritersSlow,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::ReplicaKilled,
        Self::BothReplicasKilled,
        Self::ReplicaStopped,
        Self::ReplicaFrozen,
        Self::DatabaseKilled,
        Self::DatabaseShutDown,
        Self::SessionsEnded,
        Self::BrokerKilled,
        Self::MemoryAlarm,
        Self::DiskAlarm,
        Self::DatabaseSlow,
        Self::DatabaseStalled,
        Self::DatabaseCut,
        Self::DatabaseAway,
        Self::BrokerSlow,
        Self::BrokerStalled,
        Self::ConfirmsLost,
        Self::BrokerCut,
        Self::AnswersLost,
        Self::CommitAnswersLost,
        Self::WritersSlow,
    ];

    /// For the report.
    pub fn words(self) -> &'static str {
        match self {
            Self::ReplicaKilled => "replica: kill -9",
            Self::BothReplicasKilled => "both replicas at once: kill -9",
            Self::ReplicaStopped => "replica: SIGTERM",
            Self::ReplicaFrozen => "replica: SIGSTOP and SIGCONT",
            Self::DatabaseKilled => "PostgreSQL: kill -9",
            Self::DatabaseShutDown => "PostgreSQL: immediate shutdown",
            Self::SessionsEnded => "PostgreSQL: pg_terminate_backend of random sessions",
            Self::BrokerKilled => "RabbitMQ: kill -9",
            Self::MemoryAlarm => "RabbitMQ: memory alarm",
            Self::DiskAlarm => "RabbitMQ: disk alarm",
            Self::DatabaseSlow => "replica to PostgreSQL: slow",
            Self::DatabaseStalled => "replica to PostgreSQL: stalled",
            Self::DatabaseCut => "replica to PostgreSQL: cut",
            Self::DatabaseAway => "replica to PostgreSQL: away",
            Self::BrokerSlow => "replica to RabbitMQ: slow",
            Self::BrokerStalled => "replica to RabbitMQ: stalled",
            Self::ConfirmsLost => "replica to RabbitMQ: confirms lost, then cut",
            Self::BrokerCut => "replica to RabbitMQ: cut",
            Self::AnswersLost => "writers to replica: answers lost, then cut",
            Self::CommitAnswersLost => "writers to PostgreSQL: cut within an answer",
            Self::WritersSlow => "writers to PostgreSQL: slow",
        }
    }
}

/// What was broken.
#[derive(Debug, Default)]
pub struct Injected {
    /// How often, by kind.
    pub counts: BTreeMap<Fault, u64>,
    /// Sessions ended by [`Fault::SessionsEnded`].
    pub sessions: i64,
    /// PostgreSQL's deaths.
    pub kills: Vec<DatabaseKill>,
}

/// Breaks one thing after the other until `until`, and leaves all of them healed.
pub async fn inject(
    stand: &mut Stand,
    dice: &mut StdRng,
    fence: &Mutex<Option<Instant>>,
    until: Instant,
) -> Injected {
    let mut injected = Injected::default();
    let mut pack: Vec<Fault> = Vec::new();
    while Instant::now() < until {
        let fault = match pack.pop() {
            Some(fault) => fault,
            None => {
                pack = Fault::ALL.to_vec();
                pack.shuffle(dice);
                continue;
            }
        };
        // A breath between two faults, so that each finds the system at work; and now and then none.
        let breath = if dice.random_bool(0.2) { 0..50 } else { 500..2_500 };
        tokio::time::sleep(Duration::from_millis(dice.random_range(breath))).await;
        eprintln!("soak: {}", fault.words());
        one(stand, dice, fence, fault, &mut injected).await;
        *injected.counts.entry(fault).or_default() += 1;
    }
    injected
}

async fn one(
    stand: &mut Stand,
    dice: &mut StdRng,
    fence: &Mutex<Option<Instant>>,
    fault: Fault,
    injected: &mut Injected,
) {
    let which = dice.random_range(0..2);
    let moment = |dice: &mut StdRng, longest: u64| Duration::from_millis(dice.random_range(200..=longest));
    match fault {
        Fault::ReplicaKilled => {
            stand.replicas[which].server.kill9().await;
            tokio::time::sleep(moment(dice, 2_000)).await;
            stand.replicas[which].restart().await;
        }
        Fault::BothReplicasKilled => {
            let [one, other] = &mut stand.replicas;
            tokio::join!(one.server.kill9(), other.server.kill9());
            tokio::join!(one.restart(), other.restart());
        }
        Fault::ReplicaStopped => {
            let replica = &mut stand.replicas[which];
            replica.server.sigterm();
            let status = replica.server.exit_status(Duration::from_secs(30)).await;
            assert!(status.success(), "a replica that was asked to stop ended with {status}");
            replica.restart().await;
        }
        Fault::ReplicaFrozen => {
            stand.replicas[which].server.sigstop().await;
            tokio::time::sleep(moment(dice, 7_000)).await;
            stand.replicas[which].server.sigcont();
        }
        Fault::DatabaseKilled | Fault::DatabaseShutDown => {
            let before = *fence.lock().unwrap();
            if fault == Fault::DatabaseKilled {
                stand.postgres.kill9().await;
            } else {
                stand.postgres.kill_immediate().await.expect("shut PostgreSQL down");
            }
            injected.kills.push(DatabaseKill { fence: before, over: Instant::now() });
            tokio::time::sleep(moment(dice, 1_500)).await;
            stand.postgres.start_again().await.expect("start PostgreSQL again");
        }
        Fault::SessionsEnded => {
            injected.sessions += stand.terminate_backends(dice.random_range(1..=12)).await
        }
        Fault::BrokerKilled => {
            stand.broker.kill9().await;
            tokio::time::sleep(moment(dice, 1_500)).await;
            stand.broker.start_again().await.expect("start RabbitMQ again");
        }
        Fault::MemoryAlarm => {
            stand.broker_control(&["set_vm_memory_high_watermark", "absolute", "1MB"]).await;
            tokio::time::sleep(moment(dice, 4_000)).await;
            stand.broker_control(&["set_vm_memory_high_watermark", "absolute", "512MB"]).await;
        }
        Fault::DiskAlarm => {
            stand.broker_control(&["set_disk_free_limit", "900000GB"]).await;
            tokio::time::sleep(moment(dice, 4_000)).await;
            stand.broker_control(&["set_disk_free_limit", "100MB"]).await;
        }
        Fault::AnswersLost | Fault::CommitAnswersLost | Fault::WritersSlow => {
            callers(stand, dice, which, fault).await
        }
        _ => links(stand, dice, which, fault).await,
    }
}

async fn links(stand: &Stand, dice: &mut StdRng, which: usize, fault: Fault) {
    let replica = &stand.replicas[which];
    let (database, broker) = (&replica.database_link, &replica.broker_link);
    let wait = Duration::from_millis(dice.random_range(300..=6_000));
    let late = Duration::from_millis(dice.random_range(2..=60));
    match fault {
        Fault::DatabaseSlow => database.delay(late),
        Fault::DatabaseStalled => database.stall(),
        Fault::DatabaseAway => {
            database.refuse().await;
            database.reset();
        }
        Fault::BrokerSlow => broker.delay(late),
        Fault::BrokerStalled => broker.stall(),
        Fault::ConfirmsLost => broker.swallow_replies(),
        Fault::DatabaseCut => return database.reset(),
        _ => return broker.reset(),
    }
    tokio::time::sleep(wait).await;
    if fault == Fault::ConfirmsLost {
        // A stream with a hole in it is of no use to anybody.
        broker.reset();
    }
    replica.heal_links().await;
}

async fn callers(stand: &Stand, dice: &mut StdRng, which: usize, fault: Fault) {
    let (front, writers) = (&stand.replicas[which].front_link, &stand.writers_link);
    match fault {
        Fault::AnswersLost => {
            front.swallow_replies();
            tokio::time::sleep(Duration::from_millis(dice.random_range(200..=1_500))).await;
            front.reset();
            front.pass().await;
        }
        Fault::WritersSlow => {
            writers.delay(Duration::from_millis(dice.random_range(2..=40)));
            tokio::time::sleep(Duration::from_millis(dice.random_range(300..=4_000))).await;
            writers.pass().await;
        }
        _ => {
            for _ in 0..dice.random_range(3..=12) {
                writers.flows(Flow::Pass, Flow::CutAfter(dice.random_range(0..2_000)));
                tokio::time::sleep(Duration::from_millis(dice.random_range(20..=200))).await;
            }
            writers.pass().await;
        }
    }
}
