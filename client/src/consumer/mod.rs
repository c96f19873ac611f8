//! A consumer of a RabbitMQ queue that does what [`crate::inbox`] asks for.
//!
//! ```text
//! connect ─▶ queue checked or declared ─▶ deliveries ─▶ begin, handler, commit ─▶ ack
//!    ▲                                       │              └─▶ failed: waits here, unacknowledged, and begins again
//!    └── connection, channel or an ack ──────┘                  └─▶ attempts used up: surfaced to the DLX ─▶ ack
//!        failed: all of it is torn down
//! ```
//!
//! Guarantees: a message is acknowledged only after its commit, or after its dead letter was confirmed; what is not, comes again, and
//! takes no effect again. No message is returned to the queue as a way of waiting, which the broker would count. A stop finishes what was
//! begun. Does not: keep any order, or see a message that no client can parse (the queue's delivery limit is for those).
//! Design: sections 6 and 7; pitfalls, "RabbitMQ and lapin".

mod attempt;
mod letter;
mod message;
mod queue;
mod run;
mod settings;
mod work;

pub use message::Message;
pub use settings::{ConsumerBuilder, ConsumerError, Handling};

use crate::inbox::Inbox;
use settings::Settings;

/// A queue's consumer; [`Consumer::builder`] makes one.
///
/// ```no_run
/// use holdfast_client::{Consumer, Holdfast};
///
/// # async fn example(holdfast: Holdfast, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let consumer = Consumer::builder(holdfast.inbox("orders")?, "amqp://guest:guest@localhost/", "orders.payments")
///     .bind("holdfast.events", "payment.settled")
///     .concurrency(8)
///     .in_tx(pool, |tx, message| {
///         Box::pin(async move {
///             let order = message.subject().unwrap_or_default();
///             sqlx::query("UPDATE orders SET state = 'paid' WHERE id = $1").bind(order).execute(tx).await?;
///             Ok(())
///         })
///     })?;
/// consumer.run(async { _ = tokio::signal::ctrl_c().await }).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Consumer {
    settings: Settings,
}

impl Consumer {
    /// Begins a consumer: `queue` (1 to 200 bytes) must be one of the service's `consumer_queues` in the server's configuration;
    /// `uri` is `amqp://` or `amqps://user:password@host:port/vhost`.
    pub fn builder(inbox: Inbox, uri: impl Into<String>, queue: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(inbox, uri.into(), queue.into())
    }

    /// Consumes until `stop` is ready, over as many connections as it takes; then finishes what it has in hand, within the grace time.
    ///
    /// Dropped instead, it leaves what it has in hand to the inbox: transactions are rolled back, and counted as starts that
    /// ended in nothing.
    ///
    /// # Errors
    /// [`ConsumerError::Topology`]: the queue is there with other properties, or missing and not to be declared by this account.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ConsumerError> {
        run::run(self.settings, stop).await
    }
}
