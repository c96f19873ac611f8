//! P3: from a COMMIT's answer to the consumer's receipt, against a bare LISTEN/NOTIFY relay, on a PostgreSQL that flushes.
//!
//! The relay is what one would write in an afternoon: the writer notifies in its own transaction, one task listens, reads what is
//! unsent, publishes with confirms in flight together, and marks. Holdfast's writer has no NOTIFY: it stages, commits, and hints
//! with ConfirmStaged. Both write one row of their own and one event of 1 KiB a transaction, at a fixed rate whatever is answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::join_all;
use holdfast_client::outbox::{Outbox, event};
use holdfast_tests::{
    consumer::Listener,
    database::{Database, Kind},
    server::{EXCHANGE, ServerConfig, ServerInProcess},
    vhost::Vhost,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use sqlx::{
    Executor as _, PgPool,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::common::{Figures, Flushing, at, connected, data, from_env, rounds, until};

/// When each event's COMMIT was answered, and when it came.
pub(super) type Times = Arc<Mutex<HashMap<Uuid, (Option<Instant>, Option<Instant>)>>>;

/// P3.
pub(super) async fn run() {
    let seconds = from_env("HOLDFAST_BENCH_SECONDS", 4);
    let postgres = Flushing::start().await;
    let vhost = Vhost::fresh().await;
    let times = Times::default();
    let _listener = listen(&vhost, &times).await;

    let database = Database::fresh(postgres.at, Kind::Service).await;
    let control = Database::fresh(postgres.at, Kind::Control).await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    config.service("orders", &database.url()).set("services.orders", "max_connections", "8");
    let server = ServerInProcess::start(&config).await;
    connected(&server).await;
    let outbox = holdfast_tests::client::outbox(server.address(), "orders");
    let holdfast = Writer { pool: pool(&database).await, outbox: Some(outbox), times: times.clone() };

    let other = Database::fresh(postgres.at, Kind::Service).await;
    other
        .run(
            "CREATE TABLE relay (id uuid PRIMARY KEY, body text NOT NULL, sent boolean NOT NULL DEFAULT false);
             CREATE INDEX ON relay (id) WHERE NOT sent",
        )
        .await;
    let relay = relay(&other, &vhost).await;
    let bare = Writer { pool: pool(&other).await, outbox: None, times: times.clone() };

    for rate in [100, 1_000] {
        let mut ratios = [Figures::default(), Figures::default()];
        let mut own = [Figures::default(), Figures::default()];
        for round in 0..=rounds(5) {
            let (base, ours) = if round % 2 == 0 {
                (bare.write(rate, seconds).await, holdfast.write(rate, seconds).await)
            } else {
                let ours = holdfast.write(rate, seconds).await;
                (bare.write(rate, seconds).await, ours)
            };
            println!(
                "  {rate}/s round {round}: relay p50 {:.2} p99 {:.2} ms, holdfast p50 {:.2} p99 {:.2} ms",
                base[0], base[1], ours[0], ours[1]
            );
            for i in 0..2 {
                ratios[i].add(round, ours[i] / base[i]);
                own[i].add(round, ours[i]);
            }
        }
        ratios[0].say(&format!("P3 {rate}/s: p50 holdfast / LISTEN-NOTIFY relay"));
        ratios[1].say(&format!("P3 {rate}/s: p99 holdfast / LISTEN-NOTIFY relay"));
        own[0].say(&format!("P3 {rate}/s: p50 of holdfast, ms"));
        own[1].say(&format!("P3 {rate}/s: p99 of holdfast, ms"));
    }
    relay.abort();
    server.stop().await;
}

/// Notes when each event comes for the first time; what a replay sends is none of them.
pub(super) async fn listen(vhost: &Vhost, times: &Times) -> Listener {
    let seen = times.clone();
    Listener::bound(&vhost.url(), EXCHANGE, "#", move |delivery| {
        let now = Instant::now();
        let headers = delivery.properties.headers().as_ref();
        if headers.is_some_and(|headers| headers.inner().contains_key("x-holdfast-replay")) {
            return;
        }
        let id = delivery.properties.message_id().as_ref().and_then(|id| Uuid::parse_str(id.as_str()).ok());
        if let Some(id) = id {
            seen.lock().unwrap().entry(id).or_default().1.get_or_insert(now);
        }
    })
    .await
}

pub(super) async fn pool(database: &Database) -> PgPool {
    PgPoolOptions::new().max_connections(32).min_connections(32).connect(&database.url()).await.unwrap()
}

#[derive(Clone)]
pub(super) struct Writer {
    pub(super) pool: PgPool,
    /// None: the relay's.
    pub(super) outbox: Option<Outbox>,
    pub(super) times: Times,
}

impl Writer {
    /// Writes at a rate for some seconds, waits until all has come; p50 and p99 in milliseconds.
    pub(super) async fn write(&self, rate: usize, seconds: usize) -> [f64; 2] {
        self.times.lock().unwrap().clear();
        let begun = tokio::time::Instant::now();
        let count = rate * seconds;
        let mut tasks = Vec::new();
        for n in 0..count {
            tokio::time::sleep_until(begun + Duration::from_secs_f64(n as f64 / rate as f64)).await;
            let writer = self.clone();
            tasks.push(tokio::spawn(async move { writer.one().await }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        until("all events to come", || {
            let times = self.times.lock().unwrap();
            times.values().filter(|both| both.1.is_some()).count() >= count
        })
        .await;
        let times = self.times.lock().unwrap();
        let waits: Vec<f64> = times
            .values()
            .filter_map(|both| Some(both.1?.saturating_duration_since(both.0?).as_secs_f64() * 1_000.0))
            .collect();
        assert_eq!(waits.len(), count);
        [at(&waits, 0.5), at(&waits, 0.99)]
    }

    async fn one(&self) {
        let id = Uuid::now_v7();
        let mut tx = self.pool.begin().await.unwrap();
        tx.execute(sqlx::query("INSERT INTO app_rows VALUES ($1, 'bench')").bind(id)).await.unwrap();
        match &self.outbox {
            Some(outbox) => {
                let event = event("order.placed").id(id).json_text(data()).build();
                let staged = outbox.stage_in_tx(&mut tx, [event]).await.unwrap();
                outbox.commit_and_confirm(tx, [&staged]).await.unwrap();
            }
            None => {
                let row = sqlx::query("INSERT INTO relay (id, body) VALUES ($1, $2)").bind(id).bind(data());
                tx.execute(row).await.unwrap();
                tx.execute("NOTIFY relay").await.unwrap();
                tx.commit().await.unwrap();
            }
        }
        self.times.lock().unwrap().entry(id).or_default().0 = Some(Instant::now());
    }
}

/// The baseline.
async fn relay(database: &Database, vhost: &Vhost) -> JoinHandle<()> {
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("relay").await.unwrap();
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    tokio::spawn(async move {
        let _connection = connection;
        loop {
            listener.recv().await.unwrap();
            loop {
                let unsent: Vec<(Uuid, String)> =
                    sqlx::query_as("SELECT id, body FROM relay WHERE NOT sent ORDER BY id LIMIT 500")
                        .fetch_all(&pool)
                        .await
                        .unwrap();
                if unsent.is_empty() {
                    break;
                }
                join_all(unsent.iter().map(|(id, body)| publish(&channel, *id, body))).await;
                let ids: Vec<Uuid> = unsent.into_iter().map(|(id, _)| id).collect();
                sqlx::query("UPDATE relay SET sent = true WHERE id = ANY ($1)")
                    .bind(ids)
                    .execute(&pool)
                    .await
                    .unwrap();
            }
        }
    })
}

async fn publish(channel: &Channel, id: Uuid, body: &str) {
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(id.to_string().as_str().into())
        .with_content_type("application/cloudevents+json".into());
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel
        .basic_publish(EXCHANGE.into(), "order.placed".into(), options, body.as_bytes(), properties)
        .await
        .unwrap();
    assert!(matches!(sent.await.unwrap(), lapin::Confirmation::Ack(None)));
}
