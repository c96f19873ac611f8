//! P1: how fast an outbox is drained, as a share of a raw lapin publisher with confirms on the same kind of queue.
//!
//! `./x bench` runs it. Each round runs the baseline and the drain one after the other, each into a queue of its own, so that
//! the ratio is of one moment of the machine. Sizes: 5,000 events of 1 KiB of JSON, keyless, seven rounds after one to warm up;
//! `HOLDFAST_BENCH_EVENTS` and `HOLDFAST_BENCH_ROUNDS` change them. Prints median, minimum and maximum.
#![expect(clippy::unwrap_used, reason = "a bench that meets something unexpected ends")]

use std::time::{Duration, Instant};

use futures::StreamExt;
use holdfast_server::app;
use holdfast_server::config::Config;
use holdfast_tests::database::{Database, Kind};
use holdfast_tests::server::{EXCHANGE, ServerConfig};
use holdfast_tests::services::PostgresAt;
use holdfast_tests::vhost::Vhost;
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};

/// Publishes of the baseline under way at once: as many as the drainer's window.
const IN_FLIGHT: usize = 1_000;

fn from_env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (events, rounds) = (from_env("HOLDFAST_BENCH_EVENTS", 5_000), from_env("HOLDFAST_BENCH_ROUNDS", 7));
    for kind in ["classic", "quorum"] {
        let mut ratios = Vec::new();
        for round in 0..=rounds {
            let (raw, drain) = runtime.block_on(one_round(kind, events));
            let (raw, drain) = (events as f64 / raw.as_secs_f64(), events as f64 / drain.as_secs_f64());
            println!(
                "{kind} round {round}: raw publisher {raw:.0}/s, drain {drain:.0}/s, ratio {:.2}",
                drain / raw
            );
            if round > 0 {
                ratios.push(drain / raw);
            }
        }
        ratios.sort_unstable_by(f64::total_cmp);
        println!(
            "P1 {kind}: drain / raw publisher = {:.2} (min {:.2}, max {:.2}; {rounds} rounds of {events} events)",
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
}

/// A queue of its own for each of the two, on a fresh vhost; the times of both.
async fn one_round(kind: &str, events: usize) -> (Duration, Duration) {
    let vhost = Vhost::fresh().await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(EXCHANGE.into(), ExchangeKind::Topic, durable, FieldTable::default())
        .await
        .unwrap();
    for name in ["raw", "drained"] {
        queue(&channel, name, kind).await;
    }
    let raw = raw_publisher(&channel, events).await;
    let drained = drain(&vhost, events).await;
    (raw, drained)
}

async fn queue(channel: &Channel, name: &'static str, kind: &str) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.unwrap();
    let bind = QueueBindOptions::default();
    channel.queue_bind(name.into(), EXCHANGE.into(), name.into(), bind, FieldTable::default()).await.unwrap();
}

fn data() -> String {
    format!("{{\"payload\":\"{}\"}}", "x".repeat(1_000))
}

async fn raw_publisher(channel: &Channel, events: usize) -> Duration {
    let body = data();
    let begun = Instant::now();
    futures::stream::iter(0..events)
        .map(|n| {
            let body = &body;
            async move {
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_message_id(n.to_string().as_str().into())
                    .with_content_type("application/cloudevents+json".into());
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let sent = channel
                    .basic_publish(EXCHANGE.into(), "raw".into(), options, body.as_bytes(), properties)
                    .await
                    .unwrap();
                assert!(matches!(sent.await.unwrap(), lapin::Confirmation::Ack(None)));
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .for_each(|()| async {})
        .await;
    begun.elapsed()
}

/// From the first row visible to the last one stamped. The server runs before the rows are there.
async fn drain(vhost: &Vhost, events: usize) -> Duration {
    let postgres = PostgresAt::shared();
    let database = Database::fresh(postgres, Kind::Service).await;
    let control = Database::fresh(postgres, Kind::Control).await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    config.service("orders", &database.url());
    let running = app::start(Config::parse(&config.to_toml()).unwrap()).await.unwrap();
    wait_until_connected(&running).await;
    let insert = format!(
        "INSERT INTO holdfast.event_outbox (event_type, envelope)
         SELECT 'drained', jsonb_build_object('specversion', '1.0', 'data', '{}'::jsonb)
         FROM generate_series(1, {events})",
        data()
    );
    database.run(&insert).await;
    let begun = Instant::now();
    let mut published = 0;
    while published < i64::try_from(events).unwrap() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        published =
            database.one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL").await;
    }
    let took = begun.elapsed();
    running.stop().await;
    took
}

async fn wait_until_connected(running: &app::Running) {
    let until = Instant::now() + Duration::from_secs(30);
    while !running.metrics_text().contains("holdfast_broker_connected 1") {
        assert!(Instant::now() < until, "the server did not reach the broker");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
