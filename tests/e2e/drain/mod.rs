//! The drainer seen from outside: publishing, order, claims, admission, wake-up and stopping (design, section 4; pitfalls,
//! "RabbitMQ and lapin" and the drain's part of "PostgreSQL and sqlx").

mod admission;
mod alarms;
mod broker_away;
mod claims;
mod confirms;
mod notify;
mod order;
mod order_table;
mod outages;
mod parked_verbs;
mod parking;
pub(crate) mod plans;
mod probing;
mod publishing;
mod random;
mod refused;
mod stopping;
mod stopping_in_time;
mod strangers;
mod takeover;
mod unroutable;
mod wakeup;

use holdfast_tests::{
    database::Database,
    scene::Stage,
    server::EXCHANGE,
    vhost::Vhost,
    wait::{self, LONG},
};
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions},
    types::FieldTable,
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

/// What no queue takes after [`unbind`].
pub(crate) const NOBODY: &str = "nobody.listens";

/// The drain's advisory lock: class and key in the two-int form.
pub(crate) const DRAIN_LOCK: &str = "SELECT pg_advisory_xact_lock(1213156420, 1)";

/// A row's bookkeeping.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) resolved: bool,
    pub(crate) published: bool,
    pub(crate) claimed: bool,
    pub(crate) admitted: bool,
    pub(crate) backing_off: bool,
    pub(crate) is_head: bool,
    pub(crate) attempts: i32,
    pub(crate) generation: i64,
    pub(crate) error: String,
}

impl Row {
    /// Out of the claim's path behind an earlier row of its key.
    pub(crate) fn set_aside(&self) -> bool {
        self.admitted && !self.claimed && !self.backing_off && !self.published
    }
}

pub(crate) async fn row(database: &Database, id: &str) -> Row {
    let mut connection = database.connect().await;
    let row = sqlx::query_as(
        "SELECT ticket IS NULL AS resolved, published_at IS NOT NULL AS published, claimed_at IS NOT NULL AS claimed,
                admitted_at IS NOT NULL AS admitted, next_attempt_at IS NOT NULL AS backing_off, is_head, attempts,
                claim_generation AS generation, coalesce(last_error, '') AS error
         FROM holdfast.event_outbox WHERE id = $1::uuid",
    )
    .bind(id)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let _ = connection.close().await;
    row
}

/// Waits until a row is as wanted.
pub(crate) async fn row_is(database: &Database, id: &str, what: &str, wanted: impl Fn(&Row) -> bool) -> Row {
    wait::until(&format!("event {id} to be {what}"), LONG, || async {
        let seen = row(database, id).await;
        if wanted(&seen) { Ok(seen) } else { Err(seen) }
    })
    .await
}

/// One event by hand-written SQL, as a service without the client library would write it; `more` are further columns.
pub(crate) async fn put(
    database: &Database,
    event_type: &str,
    key: Option<&str>,
    more: &[(&str, &str)],
) -> String {
    let id = Uuid::now_v7().to_string();
    let key = key.map_or_else(|| "NULL".to_owned(), |key| format!("'{key}'"));
    let names: String = more.iter().map(|(name, _)| format!(", {name}")).collect();
    let values: String = more.iter().map(|(_, value)| format!(", {value}")).collect();
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope, ordering_key{names})
             VALUES ('{id}', '{event_type}', jsonb_build_object('id', '{id}', 'type', '{event_type}'), {key}{values})"
        ))
        .await;
    id
}

/// Holds the drain's lock until the connection is closed or rolls back.
pub(crate) async fn hold_drain_lock(database: &Database) -> PgConnection {
    let mut holder = database.connect().await;
    holder.execute("BEGIN").await.unwrap();
    holder.execute(DRAIN_LOCK).await.unwrap();
    holder
}

/// How often something was counted as a missed promotion; zero unless there is a bug.
pub(crate) const MISSED: &str = "holdfast_missed_promotions_total";

pub(crate) async fn amqp(vhost: &Vhost) -> (Connection, lapin::Channel) {
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// The consumer's queue, the only one of the vhost.
async fn queue(vhost: &Vhost) -> String {
    let queues = vhost.ask("GET", &format!("/api/queues/{}", vhost.name()), None).await;
    queues[0]["name"].as_str().unwrap().to_owned()
}

/// The consumer gets everything but [`NOBODY`]: its binding to `#` is replaced by narrower ones.
pub(crate) async fn unbind(stage: &Stage) {
    let queue = queue(&stage.vhost).await;
    for pattern in ["order.#", "test.#"] {
        bind(stage, pattern).await;
    }
    let (connection, channel) = amqp(&stage.vhost).await;
    channel
        .queue_unbind(queue.as_str().into(), EXCHANGE.into(), "#".into(), FieldTable::default())
        .await
        .unwrap();
    connection.close(200, "done".into()).await.unwrap();
}

/// Binds the consumer's queue.
pub(crate) async fn bind(stage: &Stage, pattern: &str) {
    let queue = queue(&stage.vhost).await;
    let (connection, channel) = amqp(&stage.vhost).await;
    let options = QueueBindOptions::default();
    channel
        .queue_bind(queue.as_str().into(), EXCHANGE.into(), pattern.into(), options, FieldTable::default())
        .await
        .unwrap();
    connection.close(200, "done".into()).await.unwrap();
}

async fn delete_exchange(vhost: &Vhost) {
    vhost.ask("DELETE", &format!("/api/exchanges/{}/{EXCHANGE}", vhost.name()), None).await;
}

/// Whether the events exchange is there.
async fn exchange_is_there(vhost: &Vhost) -> bool {
    let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
    let (connection, channel) = amqp(vhost).await;
    let answer =
        channel.exchange_declare(EXCHANGE.into(), ExchangeKind::Topic, passive, FieldTable::default()).await;
    let _ = connection.close(200, "done".into()).await;
    answer.is_ok()
}

/// First deliveries, in order: each id once.
fn first_deliveries(ids: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    ids.into_iter().filter(|id| seen.insert(id.clone())).collect()
}

/// Of `ids`, those of `wanted`, in the order of `ids`.
fn only(ids: Vec<String>, wanted: &[String]) -> Vec<String> {
    ids.into_iter().filter(|id| wanted.contains(id)).collect()
}

/// What a broker that goes away makes the server say.
pub(crate) fn expect_broker_trouble(stage: &Stage) {
    stage.logs.expect("broker connection lost");
    stage.logs.expect("broker cannot be reached");
}

/// What a database that goes away makes the server say.
pub(crate) fn expect_database_trouble(stage: &Stage) {
    stage.logs.expect("resolver cannot reach its database");
    stage.logs.expect("service database cannot be drained");
    stage.logs.expect("outcomes cannot be written");
}
