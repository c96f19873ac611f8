//! A consumer that writes down everything that a routing pattern brings.
//!
//! Its queue is durable and survives the broker; the consumer connects again by itself and acknowledges after it
//! has written down. So what it has seen is all that the broker routed, in order per connection; a redelivery
//! is seen twice, and says so.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::FieldTable,
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::wait;

/// One delivery.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `message_id`, empty if there is none.
    pub id: String,
    /// Routing key.
    pub routing_key: String,
    /// Exchange.
    pub exchange: String,
    /// Has the broker handed it out before?
    pub redelivered: bool,
    /// All properties.
    pub properties: BasicProperties,
    /// The body as it came.
    pub body: Vec<u8>,
    /// The body as JSON, `Null` if it is none.
    pub json: Value,
}

impl Delivery {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.properties.headers().as_ref()?.inner().get(name)?;
        value.as_long_string().map(ToString::to_string)
    }
}

/// The part that consumes, for whoever keeps something else than whole deliveries; it stops when dropped.
#[derive(Debug)]
pub struct Listener {
    task: JoinHandle<()>,
}

/// The consumer; it stops when dropped.
#[derive(Debug)]
pub struct Consumer {
    seen: Arc<Mutex<Vec<Delivery>>>,
    _listener: Listener,
}

impl Listener {
    /// Binds a queue of its own to `pattern` on the topic exchange, both declared here, and hands each delivery to `note`
    /// before it is acknowledged.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn bound(
        url: &str,
        exchange: &str,
        pattern: &str,
        note: impl Fn(&lapin::message::Delivery) + Send + Sync + 'static,
    ) -> Self {
        let queue = format!("test-{}", uuid::Uuid::now_v7().simple());
        let (connection, channel) = open(url, &queue).await.expect("connect the consumer");
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel
            .exchange_declare(exchange.into(), ExchangeKind::Topic, durable, FieldTable::default())
            .await
            .expect("declare the exchange");
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel
            .queue_declare(queue.as_str().into(), durable, FieldTable::default())
            .await
            .expect("declare the queue");
        channel
            .queue_bind(
                queue.as_str().into(),
                exchange.into(),
                pattern.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .expect("bind the queue");
        Self { task: tokio::spawn(gather(url.to_owned(), queue, (connection, channel), note)) }
    }
}

impl Consumer {
    /// Binds a queue of its own to `pattern` on the topic exchange, both declared here, and starts to gather.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn bound(url: &str, exchange: &str, pattern: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let book = seen.clone();
        let note = move |delivery: &lapin::message::Delivery| {
            book.lock().unwrap().push(Delivery {
                id: delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default(),
                routing_key: delivery.routing_key.to_string(),
                exchange: delivery.exchange.to_string(),
                redelivered: delivery.redelivered,
                properties: delivery.properties.clone(),
                json: serde_json::from_slice(&delivery.data).unwrap_or(Value::Null),
                body: delivery.data.clone(),
            });
        };
        Self { _listener: Listener::bound(url, exchange, pattern, note).await, seen }
    }

    /// Everything so far.
    pub fn seen(&self) -> Vec<Delivery> {
        self.seen.lock().unwrap().clone()
    }

    /// The ids so far, in order, each as often as it came.
    pub fn ids(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|one| one.id.clone()).collect()
    }

    /// Waits until there are at least `count` deliveries, and returns all.
    pub async fn wait_for(&self, count: usize, within: Duration) -> Vec<Delivery> {
        wait::until(&format!("{count} deliveries"), within, || async {
            let seen = self.seen();
            if seen.len() >= count { Ok(seen) } else { Err(self.ids()) }
        })
        .await
    }

    /// Waits until each of these ids has come at least once.
    pub async fn wait_for_ids<I: ToString>(&self, ids: &[I], within: Duration) -> Vec<Delivery> {
        let wanted: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
        wait::until(&format!("{} given events", wanted.len()), within, || async {
            let seen: BTreeSet<String> = self.ids().into_iter().collect();
            let missing: Vec<&String> = wanted.difference(&seen).collect();
            if missing.is_empty() {
                Ok(self.seen())
            } else {
                Err(format!("{} missing, the first is {}", missing.len(), missing[0]))
            }
        })
        .await
    }

    /// Nothing else has come: waits for `marker`, an event that was staged *after* everything in question
    /// (under the same ordering key, where order matters), and then compares the ids that came before it.
    ///
    /// # Panics
    /// When other ids came, or the same ones in another order or number.
    pub async fn assert_only<I: ToString>(&self, ids: &[I], marker: impl ToString) {
        let marker = marker.to_string();
        self.wait_for_ids(&[&marker], wait::LONG).await;
        let before: Vec<String> = self.ids().into_iter().take_while(|id| *id != marker).collect();
        let wanted: Vec<String> = ids.iter().map(ToString::to_string).collect();
        assert_eq!(before, wanted, "deliveries before the marker");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn open(url: &str, name: &str) -> lapin::Result<(Connection, Channel)> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connection = Connection::connect(url, properties).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(200, BasicQosOptions::default()).await?;
    Ok((connection, channel))
}

/// Consumes for ever, over as many connections as it takes.
async fn gather(
    url: String,
    queue: String,
    first: (Connection, Channel),
    note: impl Fn(&lapin::message::Delivery),
) {
    let mut open_now = Some(first);
    loop {
        let opened = match open_now.take() {
            Some(opened) => Ok(opened),
            None => open(&url, &queue).await,
        };
        if let Ok((_connection, channel)) = opened {
            let _ = consume(&channel, &queue, &note).await;
        }
        // Between two tries to reach a broker that is away; nobody waits on this.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn consume(
    channel: &Channel,
    queue: &str,
    note: &impl Fn(&lapin::message::Delivery),
) -> lapin::Result<()> {
    let mut deliveries = channel
        .basic_consume(
            queue.into(),
            "holdfast-tests".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        note(&delivery);
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
