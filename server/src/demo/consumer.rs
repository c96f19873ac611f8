//! A consumer of the demo: a queue of its own, bound to everything the demo sends.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, ExchangeKind};
use uuid::Uuid;

use super::Places;

const QUEUE: &str = "holdfast-demo";

pub(super) struct Consumer {
    // Closed with it.
    _connection: Connection,
    deliveries: lapin::Consumer,
    seen: HashSet<Uuid>,
}

impl Consumer {
    pub(super) async fn open(places: &Places) -> anyhow::Result<Self> {
        let connection = Connection::connect(&places.amqp_url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let exchange = lapin::types::ShortString::try_new(places.exchange.clone())?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel
            .exchange_declare(exchange.clone(), ExchangeKind::Topic, durable, FieldTable::default())
            .await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(QUEUE.into(), options, FieldTable::default()).await?;
        let bind = QueueBindOptions::default();
        channel.queue_bind(QUEUE.into(), exchange, "demo.#".into(), bind, FieldTable::default()).await?;
        let deliveries = channel
            .basic_consume(QUEUE.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
            .await?;
        Ok(Self { _connection: connection, deliveries, seen: HashSet::new() })
    }

    /// Consumes until every one of these events was delivered.
    pub(super) async fn wait_for(&mut self, events: &[Uuid], patience: Duration) -> anyhow::Result<()> {
        let until = tokio::time::Instant::now() + patience;
        while !events.iter().all(|event| self.seen.contains(event)) {
            let missing = events.iter().filter(|event| !self.seen.contains(*event)).count();
            let Ok(delivery) = tokio::time::timeout_at(until, self.deliveries.next()).await else {
                bail!("{missing} of {} events did not arrive within {patience:?}", events.len());
            };
            let delivery = delivery.context("the broker ended the consumer")??;
            let id = delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
            self.seen.extend(id.parse::<Uuid>());
            delivery.ack(BasicAckOptions::default()).await?;
        }
        Ok(())
    }

    pub(super) fn saw(&self, event: Uuid) -> bool {
        self.seen.contains(&event)
    }
}
