//! P9: the log that a delivered event costs, and the pages that a claim touches, on a PostgreSQL without checkpoints and vacuum.
//!
//! The whole way: 8 callers, a transaction an event, StageInTx and ConfirmStaged, until all is published; less what the same
//! transactions cost without an event. Claim and stamp alone: rows that lie there when the server starts. Pages: what a drain of
//! the same number of events reads of table and indexes with nothing before it, and with 300,000 rows that cannot go.

use std::time::Duration;

use holdfast_client::outbox::{Outbox, event};
use holdfast_tests::{
    database::{Database, Kind},
    server::{ServerConfig, ServerInProcess},
    vhost::Vhost,
};
use lapin::{Connection, ConnectionProperties};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::{
    common::{Figures, Flushing, connected, data, from_env, rounds, until},
    drain::{declare, stuck_rows},
};

/// Bytes of log so far.
pub(super) const POSITION: &str = "SELECT (pg_current_wal_lsn() - '0/0')::float8";

/// Blocks of the outbox and its indexes that were asked for, cached or not.
const BLOCKS: &str = "SELECT (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::float8
                      FROM pg_statio_all_tables WHERE relid = 'holdfast.event_outbox'::regclass";

/// P9.
pub(super) async fn run() {
    let (events, stuck) =
        (from_env("HOLDFAST_BENCH_EVENTS", 5_000), from_env("HOLDFAST_BENCH_STUCK_ROWS", 300_000));
    let postgres = Flushing::start().await;
    let vhost = Vhost::fresh().await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    declare(&channel, &["drained"], "classic").await;
    let control = Database::fresh(postgres.at, Kind::Control).await;
    let place = async |kind| {
        let database = Database::fresh(postgres.at, kind).await;
        let mut config = ServerConfig::new(&control.url(), &vhost.url());
        config.service("orders", &database.url()).set("services.orders", "max_connections", "8");
        (database, config)
    };

    let (mut whole, mut alone) = (Figures::default(), Figures::default());
    for round in 0..=rounds(5) {
        let (database, config) = place(Kind::Service).await;
        whole.add(round, whole_way(&database, &config, events).await);
        let (database, config) = place(Kind::Service).await;
        put(&database, events).await;
        let before: f64 = database.one(POSITION).await;
        drain(&config, events).await;
        alone.add(round, (database.one::<f64>(POSITION).await - before) / events as f64);
    }
    whole.say("P9: WAL a delivered event (stage, ticket, verdict, claim, stamp), bytes");
    alone.say("P9: WAL of claim and stamp, bytes an event");

    let mut pages = Figures::default();
    for round in 0..=rounds(5) {
        let mut seen = Vec::new();
        for before in [0, stuck] {
            let (database, config) = place(Kind::Service).await;
            if before > 0 {
                database.run(&stuck_rows(before)).await;
                database.run("VACUUM (ANALYZE) holdfast.event_outbox").await;
            }
            put(&database, events).await;
            let start: f64 = database.one(BLOCKS).await;
            drain(&config, events).await;
            // Sessions report as they end, and the server is stopped.
            seen.push((database.one::<f64>(BLOCKS).await - start) / events as f64);
        }
        println!("  round {round}: blocks an event {:.1}, with {stuck} stuck rows {:.1}", seen[0], seen[1]);
        pages.add(round, seen[1] / seen[0]);
    }
    pages.say(&format!("P9: blocks a drained event, {stuck} unclaimable rows before it / none"));
}

async fn put(database: &Database, events: usize) {
    let insert = format!(
        "INSERT INTO holdfast.event_outbox (event_type, envelope)
         SELECT 'drained', jsonb_build_object('specversion', '1.0', 'data', '{}'::jsonb) FROM generate_series(1, {events})",
        data()
    );
    database.run(&insert).await;
}

/// A server from its start until so many events are stamped.
async fn drain(config: &ServerConfig, events: usize) {
    let server = ServerInProcess::start(config).await;
    until("the events to be stamped", || published(&server) >= events as f64).await;
    server.stop().await;
}

fn published(server: &ServerInProcess) -> f64 {
    server.metric("holdfast_published_total", "service=\"orders\"")
}

async fn whole_way(database: &Database, config: &ServerConfig, events: usize) -> f64 {
    let server = ServerInProcess::start(config).await;
    connected(&server).await;
    let outbox = holdfast_tests::client::outbox(server.address(), "orders");
    let mut costs = Vec::new();
    for outbox in [None, Some(outbox)] {
        let before: f64 = database.one(POSITION).await;
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let (connection, outbox) = (database.connect().await, outbox.clone());
            tasks.push(tokio::spawn(transactions(connection, outbox, events / 8)));
        }
        for task in tasks {
            task.await.unwrap();
        }
        if outbox.is_some() {
            until("the events to be stamped", || published(&server) >= (events / 8 * 8) as f64).await;
        }
        costs.push((database.one::<f64>(POSITION).await - before) / (events / 8 * 8) as f64);
    }
    server.stop().await;
    costs[1] - costs[0]
}

async fn transactions(mut connection: PgConnection, outbox: Option<Outbox>, number: usize) {
    let data = data();
    for _ in 0..number {
        let id = Uuid::now_v7();
        let mut tx = connection.begin().await.unwrap();
        tx.execute(sqlx::query("INSERT INTO app_rows VALUES ($1, 'bench')").bind(id)).await.unwrap();
        match &outbox {
            Some(outbox) => {
                let placed = event("drained").id(id).json_text(&*data).build();
                let staged = outbox.stage_in_tx(&mut tx, [placed]).await.unwrap();
                tx.commit().await.unwrap();
                outbox.confirm_staged(staged.ticket).await.unwrap();
            }
            None => tx.commit().await.unwrap(),
        }
    }
    tokio::time::timeout(Duration::from_secs(5), connection.close()).await.unwrap().unwrap();
}
