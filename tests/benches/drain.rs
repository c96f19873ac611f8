//! P1: how fast an outbox is drained, as a share of a raw lapin publisher with confirms on the same kind of queue; and whether that
//! rate stays when old and stuck rows lie about (flatness).
//!
//! Each round runs the baseline and the drain one after the other, each into a queue of its own, so that the ratio is of one moment
//! of the machine. Sizes: 5,000 events of 1 KiB of JSON, keyless. Flatness: three services in one server, one with an empty
//! outbox, one behind 1,000,000 published rows, one behind 300,000 that cannot go (the followers of one that backs off), each
//! drained of as many events by turns. `HOLDFAST_BENCH_OLD_ROWS` and `HOLDFAST_BENCH_STUCK_ROWS` change those.

use std::time::{Duration, Instant};

use futures::StreamExt;
use holdfast_tests::{
    database::{Database, Kind},
    server::{EXCHANGE, ServerConfig, ServerInProcess},
    services::PostgresAt,
    vhost::Vhost,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};

use crate::common::{Figures, connected, data, from_env, rounds, until};

/// Publishes of the baseline under way at once: as many as the drainer's window.
const IN_FLIGHT: usize = 1_000;

/// P1.
pub(super) async fn run() {
    let (events, rounds) = (from_env("HOLDFAST_BENCH_EVENTS", 5_000), rounds(7));
    for kind in ["classic", "quorum"] {
        let mut ratios = Figures::default();
        for round in 0..=rounds {
            let (raw, drain) = one_round(kind, events).await;
            let (raw, drain) = (events as f64 / raw.as_secs_f64(), events as f64 / drain.as_secs_f64());
            println!(
                "  {kind} round {round}: raw publisher {raw:.0}/s, drain {drain:.0}/s, ratio {:.2}",
                drain / raw
            );
            ratios.add(round, drain / raw);
        }
        ratios.say(&format!("P1 {kind}: drain / raw publisher, {events} events"));
    }
}

/// P2's and P9's flatness.
pub(super) async fn flatness() {
    let (events, rounds) = (from_env("HOLDFAST_BENCH_EVENTS", 5_000), rounds(5));
    let (old, stuck) =
        (from_env("HOLDFAST_BENCH_OLD_ROWS", 1_000_000), from_env("HOLDFAST_BENCH_STUCK_ROWS", 300_000));
    let postgres = PostgresAt::shared();
    let names = ["empty", "old", "stuck"];
    let vhost = Vhost::fresh().await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    declare(&channel, &["drained"], "classic").await;
    let control = Database::fresh(postgres, Kind::Control).await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    let mut databases = Vec::new();
    for name in names {
        let database = Database::fresh(postgres, Kind::Service).await;
        config.service(name, &database.url());
        databases.push(database);
    }
    databases[1].run(&published_rows(old)).await;
    databases[2].run(&stuck_rows(stuck)).await;
    for database in &databases {
        database.run("VACUUM (ANALYZE) holdfast.event_outbox").await;
    }
    // What the loading left to be written is not to be written while one of them is measured.
    databases[0].run("CHECKPOINT").await;
    let running = ServerInProcess::start(&config).await;
    connected(&running).await;
    let mut figures = [Figures::default(), Figures::default()];
    for round in 0..=rounds {
        let mut rates = [0.0; 3];
        // Each takes each place in turn: what came just before is felt.
        for at in (0..3).map(|place| (place + round) % 3) {
            let took = drained(&running, names[at], &databases[at], events).await;
            rates[at] = events as f64 / took.as_secs_f64();
        }
        println!(
            "  round {round}: empty {:.0}/s, old rows {:.0}/s, stuck rows {:.0}/s",
            rates[0], rates[1], rates[2]
        );
        figures[0].add(round, rates[1] / rates[0]);
        figures[1].add(round, rates[2] / rates[0]);
    }
    running.stop().await;
    figures[0].say(&format!("flat: drain behind {old} published rows / empty outbox, {events} events"));
    figures[1].say(&format!("flat: drain behind {stuck} unclaimable rows / empty outbox, {events} events"));
}

/// Rows that were delivered long ago.
pub(super) fn published_rows(rows: usize) -> String {
    format!(
        "INSERT INTO holdfast.event_outbox
             (event_type, envelope, created_at, admitted_at, claim_generation, published_at, first_published_at, last_published_at)
         SELECT 'drained', '{{\"specversion\": \"1.0\"}}', at, at, 1, at, at, at
         FROM generate_series(1, {rows}) AS n, LATERAL (SELECT now() - interval '1 day' + n * interval '1 ms' AS at) AS t"
    )
}

/// Rows that cannot go: the followers, set aside, of a row that backs off for a day.
pub(super) fn stuck_rows(rows: usize) -> String {
    format!(
        "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key, admitted_at, next_attempt_at, attempts)
         SELECT 'drained', '{{\"specversion\": \"1.0\"}}', 'stuck', now(),
                CASE WHEN n = 1 THEN now() + interval '1 day' END, (n = 1)::integer
         FROM generate_series(1, {rows}) AS n ORDER BY n"
    )
}

/// A queue of its own for each of the two, on a fresh vhost; the times of both.
async fn one_round(kind: &str, events: usize) -> (Duration, Duration) {
    let vhost = Vhost::fresh().await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    declare(&channel, &["raw", "drained"], kind).await;
    let raw = raw_publisher(&channel, events).await;
    let drained = drain(&vhost, events).await;
    (raw, drained)
}

/// The exchange, and queues bound to it by their names.
pub(super) async fn declare(channel: &Channel, queues: &[&'static str], kind: &str) {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(EXCHANGE.into(), ExchangeKind::Topic, durable, FieldTable::default())
        .await
        .unwrap();
    for name in queues {
        queue(channel, name, kind).await;
    }
}

async fn queue(channel: &Channel, name: &'static str, kind: &str) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.unwrap();
    let bind = QueueBindOptions::default();
    channel.queue_bind(name.into(), EXCHANGE.into(), name.into(), bind, FieldTable::default()).await.unwrap();
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
    let running = ServerInProcess::start(&config).await;
    connected(&running).await;
    let took = drained(&running, "orders", &database, events).await;
    running.stop().await;
    took
}

/// Puts events in, and waits until they are stamped. Asked is the server, not the database, which has enough to do.
pub(super) async fn drained(
    server: &ServerInProcess,
    service: &str,
    database: &Database,
    events: usize,
) -> Duration {
    let published = || server.metric("holdfast_published_total", &format!("service=\"{service}\""));
    let all = published() + events as f64;
    let insert = format!(
        "INSERT INTO holdfast.event_outbox (event_type, envelope)
         SELECT 'drained', jsonb_build_object('specversion', '1.0', 'data', '{}'::jsonb)
         FROM generate_series(1, {events})",
        data()
    );
    database.run(&insert).await;
    let begun = Instant::now();
    until("the events to be stamped", || published() >= all).await;
    begun.elapsed()
}
