//! What a consumer is made of.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lapin::types::{AMQPValue, ShortString};
use lapin::uri::AMQPUri;
#[cfg(feature = "sqlx")]
use sqlx::{PgConnection, PgPool};

use super::{Consumer, Message};
use crate::inbox::{HandlerError, Inbox};

/// A handler at work: what `Box::pin(async move { … })` makes.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// A handler that works in a transaction.
#[cfg(feature = "sqlx")]
pub(super) type InTx = dyn for<'a> Fn(&'a mut PgConnection, &'a Message) -> Handling<'a> + Send + Sync;
/// A handler that works elsewhere.
pub(super) type Elsewhere = dyn for<'a> Fn(&'a Message) -> Handling<'a> + Send + Sync;

/// What the effect is bound to, and who has it.
#[derive(Clone)]
pub(super) enum Mode {
    #[cfg(feature = "sqlx")]
    Ticket(PgPool, Arc<InTx>),
    #[cfg(feature = "sqlx")]
    InProcess(PgPool, Arc<InTx>),
    Lease(Arc<Elsewhere>),
}

/// Everything that was judged.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) inbox: Inbox,
    pub(super) uri: AMQPUri,
    pub(super) queue: ShortString,
    pub(super) dlx: String,
    pub(super) bindings: Vec<(ShortString, ShortString)>,
    pub(super) arguments: Vec<(ShortString, AMQPValue)>,
    pub(super) prefetch: u16,
    pub(super) concurrency: usize,
    pub(super) handler_timeout: Duration,
    pub(super) grace: Duration,
    pub(super) backoff: (Duration, Duration),
    pub(super) mode: Mode,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the handler, which is code, nor the address, which has a password.
        f.debug_struct("Settings").field("queue", &self.queue.as_str()).finish_non_exhaustive()
    }
}

/// Why a consumer cannot be, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The address of the broker is none.
    #[error("the broker's address: {0}")]
    Uri(String),
    /// A setting that cannot be right.
    #[error("{0}")]
    Setting(String),
    /// The queue is not as it must be. An operator's to mend; names the object, and what the broker said.
    #[error("{0}")]
    Topology(String),
}

/// A consumer in the making. Each method sets one thing; the last call of a method wins.
///
/// ```
/// use std::time::Duration;
///
/// use holdfast_client::{Consumer, ConsumerError, Holdfast};
///
/// # fn example(holdfast: Holdfast) -> Result<Consumer, Box<dyn std::error::Error>> {
/// let consumer = Consumer::builder(holdfast.inbox("orders")?, "amqp://localhost/", "orders.mails")
///     .bind("holdfast.events", "order.placed")
///     .dead_letter_exchange("holdfast.dlx")
///     .queue_type("quorum")
///     .prefetch(40)
///     .concurrency(10)
///     .handler_timeout(Duration::from_secs(20))
///     .grace(Duration::from_secs(25))
///     .backoff(Duration::from_millis(500), Duration::from_secs(60))
///     .with_lease(|message| Box::pin(async move {
///         println!("mail about {:?}", message.subject());
///         Ok(())
///     }))?;
/// # Ok(consumer) }
/// ```
#[must_use = "it consumes nothing before `in_tx`, `in_process` or `with_lease`, and `run`"]
pub struct ConsumerBuilder {
    inbox: Inbox,
    uri: String,
    queue: String,
    dlx: String,
    bindings: Vec<(String, String)>,
    queue_type: String,
    prefetch: u16,
    concurrency: usize,
    handler_timeout: Duration,
    grace: Duration,
    backoff: (Duration, Duration),
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Beyond a day it is no limit, and the lease has one.
const LONGEST_HANDLER: Duration = Duration::from_secs(11 * 3600);
const MOST_QUEUE_BYTES: usize = 200;

impl ConsumerBuilder {
    pub(super) fn new(inbox: Inbox, uri: String, queue: String) -> Self {
        Self {
            inbox,
            uri,
            queue,
            dlx: "holdfast.dlx".to_owned(),
            bindings: Vec::new(),
            queue_type: "quorum".to_owned(),
            prefetch: 20,
            concurrency: 4,
            handler_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(20),
            backoff: (Duration::from_secs(1), Duration::from_secs(60)),
        }
    }

    /// Binds the queue to a topic exchange. May be called several times. Without it the queue's bindings are its operator's.
    pub fn bind(mut self, exchange: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.bindings.push((exchange.into(), pattern.into()));
        self
    }

    /// The server's `topology.dlx`. The queue is declared with it and with the routing key `dlq.<queue>`, so that what the
    /// broker itself rejects goes where the server's dead letters go. Default: `holdfast.dlx`.
    pub fn dead_letter_exchange(mut self, exchange: impl Into<String>) -> Self {
        self.dlx = exchange.into();
        self
    }

    /// The queue's `x-queue-type`. Default: `quorum`, whose delivery limit gets rid of a message that kills whoever receives it (20 from
    /// RabbitMQ 4.0 on; before, where a policy sets one).
    pub fn queue_type(mut self, queue_type: impl Into<String>) -> Self {
        self.queue_type = queue_type.into();
        self
    }

    /// How many messages may be in hand, at work or waiting for another attempt; at least 1, default 20. After a lost
    /// connection it starts at 1 and doubles with each acknowledgement.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages;
        self
    }

    /// How many handlers run at once; at least 1, default 4. Each needs a connection of the pool.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How long a handler may take; above 0, at most 11 hours, default 60 s. Then it is dropped, rolled back, and counted as failed. A lease
    /// is half a minute longer.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = limit;
        self
    }

    /// How long a stop waits for handlers at work; default 20 s. Then they are dropped, rolled back, and given back uncounted.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The wait after a first failure, and the longest; it doubles, with jitter. Default: 1 s and 60 s. It is spent here, the
    /// message unacknowledged: stay well below the broker's `consumer_timeout` (30 min).
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = (first, longest);
        self
    }

    /// Ticket: the handler works in an open transaction whose COMMIT is the mark. The effect happens once; the server must be there.
    ///
    /// The handler must neither commit nor roll back itself; it may stage events in the same transaction.
    ///
    /// # Errors
    /// [`ConsumerError`]: a setting cannot be right.
    ///
    /// ```no_run
    /// # use holdfast_client::{Consumer, inbox::Inbox, outbox::{Outbox, event}};
    /// # fn example(inbox: Inbox, outbox: Outbox, pool: sqlx::PgPool) -> Result<Consumer, Box<dyn std::error::Error>> {
    /// let consumer = Consumer::builder(inbox, "amqp://localhost/", "orders.payments").in_tx(pool, move |tx, message| {
    ///     let outbox = outbox.clone();
    ///     Box::pin(async move {
    ///         let order = message.subject().unwrap_or_default();
    ///         sqlx::query("UPDATE orders SET state = 'paid' WHERE id = $1").bind(order).execute(&mut *tx).await?;
    ///         outbox.stage_in_tx(tx, [event("order.paid").subject(order)]).await?;
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok(consumer) }
    /// ```
    #[cfg(feature = "sqlx")]
    pub fn in_tx<F>(self, pool: PgPool, handler: F) -> Result<Consumer, ConsumerError>
    where
        F: for<'a> Fn(&'a mut PgConnection, &'a Message) -> Handling<'a> + Send + Sync + 'static,
    {
        self.finish(Mode::Ticket(pool, Arc::new(handler)))
    }

    /// In process: as [`Self::in_tx`], without the server in a message's path ([`crate::inbox::handle_in_tx`]); only dead
    /// letters need it. The pool's role must be a member of `holdfast_consumer`.
    ///
    /// # Errors
    /// [`ConsumerError`]: a setting cannot be right.
    ///
    /// ```no_run
    /// # use holdfast_client::{Consumer, inbox::Inbox};
    /// # fn example(inbox: Inbox, pool: sqlx::PgPool) -> Result<Consumer, Box<dyn std::error::Error>> {
    /// let consumer = Consumer::builder(inbox, "amqp://localhost/", "orders.payments").in_process(pool, |tx, message| {
    ///     Box::pin(async move {
    ///         sqlx::query("UPDATE orders SET state = 'paid' WHERE id = $1").bind(message.subject()).execute(tx).await?;
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok(consumer) }
    /// ```
    #[cfg(feature = "sqlx")]
    pub fn in_process<F>(self, pool: PgPool, handler: F) -> Result<Consumer, ConsumerError>
    where
        F: for<'a> Fn(&'a mut PgConnection, &'a Message) -> Handling<'a> + Send + Sync + 'static,
    {
        self.finish(Mode::InProcess(pool, Arc::new(handler)))
    }

    /// Lease: for handlers without a transaction in the service's database. The effect happens at least once.
    ///
    /// # Errors
    /// [`ConsumerError`]: a setting cannot be right.
    pub fn with_lease<F>(self, handler: F) -> Result<Consumer, ConsumerError>
    where
        F: for<'a> Fn(&'a Message) -> Handling<'a> + Send + Sync + 'static,
    {
        self.finish(Mode::Lease(Arc::new(handler)))
    }

    fn finish(self, mode: Mode) -> Result<Consumer, ConsumerError> {
        // lapin's type has the password in it, and so have some of its errors.
        let uri: AMQPUri = self
            .uri
            .parse()
            .map_err(|_| ConsumerError::Uri("it is no amqp:// or amqps:// URI".to_owned()))?;
        let wrong = |what: &str| Err(ConsumerError::Setting(what.to_owned()));
        if !(1..=MOST_QUEUE_BYTES).contains(&self.queue.len()) {
            return wrong("the queue's name must have 1 to 200 bytes");
        }
        if self.prefetch == 0 || self.concurrency == 0 || self.concurrency > 10_000 {
            return wrong("prefetch must be at least 1, concurrency 1 to 10,000");
        }
        if self.handler_timeout.is_zero() || self.handler_timeout > LONGEST_HANDLER {
            return wrong("handler_timeout must be above 0 and at most 11 hours");
        }
        let bindings = self
            .bindings
            .iter()
            .map(|(exchange, pattern)| Ok((short(exchange)?, short(pattern)?)))
            .collect::<Result<_, ConsumerError>>()?;
        let text = |text: &str| AMQPValue::LongString(text.into());
        let arguments = vec![
            ("x-queue-type".into(), text(&self.queue_type)),
            ("x-dead-letter-exchange".into(), text(&self.dlx)),
            ("x-dead-letter-routing-key".into(), text(&format!("dlq.{}", self.queue))),
        ];
        let settings = Settings {
            inbox: self.inbox,
            uri,
            queue: short(&self.queue)?,
            dlx: self.dlx,
            bindings,
            arguments,
            prefetch: self.prefetch,
            concurrency: self.concurrency,
            handler_timeout: self.handler_timeout,
            grace: self.grace,
            backoff: self.backoff,
            mode,
        };
        Ok(Consumer { settings })
    }
}

fn short(name: &str) -> Result<ShortString, ConsumerError> {
    ShortString::try_new(name).map_err(|_| ConsumerError::Setting(format!("{name:?} is over 255 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Holdfast;

    fn made(change: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder, uri: &str, queue: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _inside = runtime.as_ref().map(|runtime| runtime.enter());
        let holdfast = Holdfast::builder().endpoint("http://localhost:1").build();
        let inbox = holdfast.map(|holdfast| holdfast.inbox("orders"));
        let Ok(Ok(inbox)) = inbox else { return "no inbox".to_owned() };
        match change(Consumer::builder(inbox, uri, queue)).with_lease(|_| Box::pin(async { Ok(()) })) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_setting_that_cannot_be_right_is_refused_and_no_password_is_said() {
        let amqp = "amqp://user:secret@localhost/v";
        assert_eq!(made(|b| b, amqp, "q"), "");
        let long = "q".repeat(201);
        for (problem, refused) in [
            ("address", made(|b| b, "ampq://user:secret@localhost/", "q")),
            ("200 bytes", made(|b| b, amqp, "")),
            ("200 bytes", made(|b| b, amqp, &long)),
            ("prefetch", made(|b| b.prefetch(0), amqp, "q")),
            ("concurrency", made(|b| b.concurrency(0), amqp, "q")),
            ("handler_timeout", made(|b| b.handler_timeout(Duration::ZERO), amqp, "q")),
            ("handler_timeout", made(|b| b.handler_timeout(Duration::from_secs(86_400)), amqp, "q")),
            ("255 bytes", made(|b| b.bind("e".repeat(256), "#"), amqp, "q")),
        ] {
            assert!(refused.contains(problem) && !refused.contains("secret"), "{problem}: {refused:?}");
        }
    }
}
