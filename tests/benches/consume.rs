//! What the inbox costs a consumer: the three modes of `holdfast_client::Consumer` against a bare lapin consumer, which writes its row,
//! commits and acks, and has nothing against a redelivery. Each handler writes one row in a transaction of its own; messages carry
//! 1 KiB; the PostgreSQL flushes.
//!
//! Each measure has so many messages lie in the queue, and goes from the first handler's start to the last one's end.
//! `HOLDFAST_BENCH_MESSAGES` (2,000) changes how many. Prefetch is twice as many as handlers at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use futures::StreamExt as _;
use holdfast_client::{Consumer, Handling, Message};
use holdfast_tests::{
    client,
    database::{Database, Kind},
    server::{ServerConfig, ServerInProcess},
    vhost::Vhost,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    },
    types::{AMQPValue, FieldTable},
};
use sqlx::{
    ConnectOptions as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::common::{Figures, Flushing, connected, data, from_env, rounds};

const QUEUE: &str = "orders.bench";
/// Publishes under way at once while a queue is filled.
const IN_FLIGHT: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Ticket,
    InProcess,
    Lease,
}

const WAYS: [Way; 4] = [Way::Bare, Way::Ticket, Way::InProcess, Way::Lease];

/// The bench `consume`.
pub(super) async fn run() {
    let messages = from_env("HOLDFAST_BENCH_MESSAGES", 2_000);
    let postgres = Flushing::start().await;
    let database = Database::fresh(postgres.at, Kind::Service).await;
    let control = Database::fresh(postgres.at, Kind::Control).await;
    let vhost = Vhost::fresh().await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    config.service("orders", &database.url()).set("services.orders", "max_connections", "16");
    config.set("services.orders", "consumer_queues", &format!("[{QUEUE:?}]"));
    let server = ServerInProcess::start(&config).await;
    connected(&server).await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    declare(&channel).await;

    for handlers in [1, 8] {
        let scene =
            Bench { database: &database, server: &server, vhost: &vhost, channel: &channel, handlers };
        let mut ratios: [Figures; 3] = Default::default();
        for round in 0..=rounds(5) {
            let mut rates = [0.0; 4];
            // Each takes each place in turn: what came just before is felt.
            for at in (0..4).map(|place| (place + round) % 4) {
                rates[at] = messages as f64 / scene.measure(WAYS[at], messages).await;
            }
            println!(
                "  {handlers} handlers round {round}: a second bare {:.0}, ticket {:.0}, in process {:.0}, lease {:.0}",
                rates[0], rates[1], rates[2], rates[3]
            );
            for (ratio, rate) in ratios.iter_mut().zip(&rates[1..]) {
                ratio.add(round, rate / rates[0]);
            }
        }
        for (ratio, mode) in ratios.iter().zip(["ticket", "in process", "lease"]) {
            ratio.say(&format!("consume {handlers} handlers: {mode} / bare consumer, {messages} messages"));
        }
    }
    server.stop().await;
}

/// As `holdfast_client::Consumer` declares it, so that all four have the same queue.
async fn declare(channel: &Channel) {
    let mut arguments = FieldTable::default();
    for (name, value) in [
        ("x-queue-type", "quorum"),
        ("x-dead-letter-exchange", "holdfast.dlx"),
        ("x-dead-letter-routing-key", &format!("dlq.{QUEUE}")),
    ] {
        arguments.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let durable = lapin::options::QueueDeclareOptions {
        durable: true,
        ..lapin::options::QueueDeclareOptions::default()
    };
    channel.queue_declare(QUEUE.into(), durable, arguments).await.unwrap();
}

/// What a handler run leaves behind: how many there were, and the time from the first one's start to the last one's end.
#[derive(Debug, Default)]
struct Book {
    done: AtomicUsize,
    begun: Mutex<Option<Instant>>,
}

impl Book {
    fn enter(&self) {
        self.begun.lock().unwrap().get_or_insert_with(Instant::now);
    }

    /// The time, if that was the last of so many.
    fn leave(&self, messages: usize) -> Option<f64> {
        let done = self.done.fetch_add(1, Ordering::AcqRel) + 1;
        (done == messages).then(|| self.begun.lock().unwrap().unwrap().elapsed().as_secs_f64())
    }
}

/// Ends a measure: the book, and where the time goes.
#[derive(Debug, Clone)]
struct Measured {
    book: Arc<Book>,
    messages: usize,
    took: tokio::sync::mpsc::UnboundedSender<f64>,
}

impl Measured {
    fn leave(&self) {
        if let Some(took) = self.book.leave(self.messages) {
            self.took.send(took).unwrap();
        }
    }
}

struct Bench<'a> {
    database: &'a Database,
    server: &'a ServerInProcess,
    vhost: &'a Vhost,
    channel: &'a Channel,
    handlers: u16,
}

impl Bench<'_> {
    /// Seconds for so many messages.
    async fn measure(&self, way: Way, messages: usize) -> f64 {
        self.fill(messages).await;
        let pool = self.pool().await;
        let (took, mut taken) = tokio::sync::mpsc::unbounded_channel();
        let measured = Measured { book: Arc::default(), messages, took };
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = if way == Way::Bare {
            tokio::spawn(bare(self.vhost.url(), pool, self.handlers, measured))
        } else {
            let consumer = self.consumer(way, pool, measured);
            tokio::spawn(async move { consumer.run(stopped).await.unwrap() })
        };
        let took = taken.recv().await.unwrap();
        // Both ack what they have: nothing returns to the queue.
        stop.cancel();
        task.await.unwrap();
        let rows: i64 = self.database.one("SELECT count(*) FROM app_rows").await;
        assert_eq!(rows, i64::try_from(messages).unwrap(), "{way:?}");
        self.database.run("TRUNCATE app_rows").await;
        took
    }

    async fn fill(&self, messages: usize) {
        let body = data();
        futures::stream::iter(0..messages)
            .map(|_| async {
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_message_id(Uuid::now_v7().to_string().into())
                    .with_type("order.placed".into())
                    .with_app_id("shop".into());
                let options = BasicPublishOptions::default();
                let sent = self
                    .channel
                    .basic_publish("".into(), QUEUE.into(), options, body.as_bytes(), properties)
                    .await
                    .unwrap();
                assert!(matches!(sent.await.unwrap(), lapin::Confirmation::Ack(None)));
            })
            .buffer_unordered(IN_FLIGHT)
            .for_each(|()| async {})
            .await;
    }

    async fn pool(&self) -> PgPool {
        let options: PgConnectOptions = self.database.url().parse().unwrap();
        let connections = u32::from(self.handlers);
        let pool = PgPoolOptions::new().max_connections(connections).min_connections(connections);
        pool.connect_with(options.disable_statement_logging()).await.unwrap()
    }

    fn consumer(&self, way: Way, pool: PgPool, measured: Measured) -> Consumer {
        let inbox = client::inbox(self.server.address(), "orders");
        let builder = Consumer::builder(inbox, self.vhost.url(), QUEUE)
            .prefetch(self.handlers * 2)
            .concurrency(self.handlers.into());
        match way {
            Way::Ticket => builder.in_tx(pool, handler(measured)).unwrap(),
            Way::InProcess => builder.in_process(pool, handler(measured)).unwrap(),
            Way::Lease | Way::Bare => builder
                .with_lease(move |message| {
                    let (pool, measured, id) = (pool.clone(), measured.clone(), message.id());
                    Box::pin(async move { Ok(in_own_tx(&pool, &measured, id).await?) })
                })
                .unwrap(),
        }
    }
}

fn handler(
    measured: Measured,
) -> impl for<'a> Fn(&'a mut PgConnection, &'a Message) -> Handling<'a> + Send + Sync {
    move |tx, message| {
        let (measured, id) = (measured.clone(), message.id());
        Box::pin(async move {
            measured.book.enter();
            write(tx, id).await?;
            measured.leave();
            Ok(())
        })
    }
}

async fn write(conn: &mut PgConnection, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO app_rows VALUES ($1, 'bench')").bind(id).execute(conn).await.map(|_| ())
}

async fn in_own_tx(pool: &PgPool, measured: &Measured, id: Uuid) -> Result<(), sqlx::Error> {
    measured.book.enter();
    let mut tx = pool.begin().await?;
    write(&mut tx, id).await?;
    tx.commit().await?;
    measured.leave();
    Ok(())
}

/// The bare consumer: as many handlers at once, and an ack after each commit.
async fn bare(url: String, pool: PgPool, handlers: u16, measured: Measured) {
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(handlers * 2, BasicQosOptions::default()).await.unwrap();
    let options = BasicConsumeOptions::default();
    let deliveries =
        channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await.unwrap();
    deliveries
        .take(measured.messages)
        .for_each_concurrent(usize::from(handlers), |delivery| async {
            let delivery = delivery.unwrap();
            let id = delivery.properties.message_id().as_ref().unwrap().as_str().parse().unwrap();
            in_own_tx(&pool, &measured, id).await.unwrap();
            delivery.ack(BasicAckOptions::default()).await.unwrap();
        })
        .await;
    connection.close(200, "bye".into()).await.unwrap();
}
