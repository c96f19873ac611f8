//! P4: a transaction of a service, bare, with `publish_in_tx`, and with `StageInTx`, at 1, 8 and 32 callers, on a PostgreSQL that
//! flushes; and what a ticket adds to the log. The broker is away: what is staged stays, so that draining does not take its share
//! of the machine from one side only. Each transaction writes one row of its own and one event of 1 KiB.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_client::outbox::{Outbox, event, publish_in_tx, ticket};
use holdfast_proto::v1::Event;
use holdfast_tests::{
    database::{Database, Kind},
    server::{ServerConfig, ServerInProcess},
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::common::{Figures, Flushing, at, data, from_env, rounds};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    InProcess,
    Staged,
    /// A ticket that nothing is staged under.
    Ticket,
}

/// P4.
pub(super) async fn run() {
    let millis = from_env("HOLDFAST_BENCH_MILLIS", 1_500) as u64;
    let postgres = Flushing::start().await;
    let database = Database::fresh(postgres.at, Kind::Service).await;
    let control = Database::fresh(postgres.at, Kind::Control).await;
    // Nobody listens on port 1.
    let mut config = ServerConfig::new(&control.url(), "amqp://guest:guest@127.0.0.1:1/%2f");
    config.service("orders", &database.url()).set("services.orders", "max_connections", "8");
    let server = ServerInProcess::start(&config).await;
    let outbox = holdfast_tests::client::outbox(server.address(), "orders");

    for callers in [1, 8, 32] {
        let mut ratios: [Figures; 4] = Default::default();
        for round in 0..=rounds(5) {
            let ways = [Way::Bare, Way::InProcess, Way::Staged];
            let mut seen = [Seen::default(), Seen::default(), Seen::default()];
            for at in (0..3).map(|place| (place + round) % 3) {
                let length = Duration::from_millis(millis);
                seen[at] = measure(&database, &outbox, ways[at], callers, length).await;
            }
            println!(
                "  {callers} callers round {round}: p50 ms bare {:.2}, publish_in_tx {:.2}, StageInTx {:.2}; a second {:.0}, \
                 {:.0}, {:.0}",
                seen[0].p50, seen[1].p50, seen[2].p50, seen[0].rate, seen[1].rate, seen[2].rate
            );
            ratios[0].add(round, seen[2].p50 / seen[1].p50);
            ratios[1].add(round, seen[2].rate / seen[1].rate);
            ratios[2].add(round, seen[1].p50 / seen[0].p50);
            ratios[3].add(round, seen[2].p50 / seen[0].p50);
        }
        ratios[0].say(&format!("P4 {callers} callers: p50 StageInTx / publish_in_tx"));
        ratios[1].say(&format!("P4 {callers} callers: throughput StageInTx / publish_in_tx"));
        ratios[2].say(&format!("P4 {callers} callers: p50 publish_in_tx / bare transaction"));
        ratios[3].say(&format!("P4 {callers} callers: p50 StageInTx / bare transaction"));
    }

    let mut bytes = Figures::default();
    for round in 0..=rounds(5) {
        let mut seen = Vec::new();
        for way in [Way::Bare, Way::Ticket] {
            seen.push(wal_a_transaction(&database, &outbox, way).await);
        }
        bytes.add(round, seen[1] - seen[0]);
    }
    bytes.say("P4: WAL a ticket adds to its transaction, bytes");
    server.stop().await;
}

#[derive(Default)]
struct Seen {
    p50: f64,
    rate: f64,
}

async fn measure(database: &Database, outbox: &Outbox, way: Way, callers: usize, length: Duration) -> Seen {
    let mut connections = Vec::new();
    for _ in 0..callers {
        connections.push(database.connect().await);
    }
    let data = Arc::new(data());
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for mut connection in connections {
        let (outbox, data) = (outbox.clone(), data.clone());
        tasks.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while begun.elapsed() < length {
                let start = Instant::now();
                transaction(&mut connection, &outbox, way, &data).await;
                took.push(start.elapsed().as_secs_f64() * 1_000.0);
            }
            connection.close().await.unwrap();
            took
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    Seen { p50: at(&all, 0.5), rate: all.len() as f64 / begun.elapsed().as_secs_f64() }
}

async fn transaction(connection: &mut PgConnection, outbox: &Outbox, way: Way, data: &str) {
    let id = Uuid::now_v7();
    let event = || -> Event { event("order.placed").id(id).json_text(data).build() };
    let mut tx = connection.begin().await.unwrap();
    tx.execute(sqlx::query("INSERT INTO app_rows VALUES ($1, 'bench')").bind(id)).await.unwrap();
    match way {
        Way::Bare => {}
        Way::InProcess => {
            publish_in_tx(&mut tx, "orders", &event()).await.unwrap();
        }
        Way::Staged => {
            outbox.stage_in_tx(&mut tx, [event()]).await.unwrap();
        }
        Way::Ticket => {
            ticket(&mut tx).await.unwrap();
        }
    }
    tx.commit().await.unwrap();
}

async fn wal_a_transaction(database: &Database, outbox: &Outbox, way: Way) -> f64 {
    const TRANSACTIONS: usize = 2_000;
    let mut connection = database.connect().await;
    let before: f64 = database.one(crate::wal::POSITION).await;
    for _ in 0..TRANSACTIONS {
        transaction(&mut connection, outbox, way, "{}").await;
    }
    let after: f64 = database.one(crate::wal::POSITION).await;
    connection.close().await.unwrap();
    (after - before) / TRANSACTIONS as f64
}
