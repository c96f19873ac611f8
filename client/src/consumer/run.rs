//! A consumer's life: one connection after the other, until it is stopped.
//!
//! Guarantees: a delivery is acknowledged on the channel that brought it, or not at all. An acknowledgement that fails, a channel or a
//! connection that ends, a task that dies: each tears the session down whole, and another one begins, with a prefetch of 1 that doubles, so
//! that only the message that did it is returned again and again. lapin's own recovery is not used.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::Message;
use super::queue::{self, QueueError};
use super::settings::{ConsumerError, Settings};
use super::work::{self, Shared, Verdict};

/// A dead peer is noticed after two of them.
const HEARTBEAT: u16 = 10;
/// Most time for a connection and its queue.
const CONNECT: Duration = Duration::from_secs(15);
/// Most time for a good-bye.
const CLOSE: Duration = Duration::from_secs(2);
/// How often connection and channel are looked at: not every end is an event.
const LOOK: Duration = Duration::from_millis(500);
/// From the end of the grace time, in which handlers that are dropped are written down.
const LAST_WORDS: Duration = Duration::from_secs(5);
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How a delivery's task ended.
enum End {
    Acknowledged,
    /// Its session's end, or the reason for it.
    AckFailed,
    Left,
}

type Tasks = JoinSet<(u64, End)>;

/// How a session ended.
enum Ended {
    Stopped,
    Torn(String),
}

pub(super) async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), ConsumerError> {
    let hard = CancellationToken::new();
    // Whoever drops this future drops what it has in hand.
    let _drop_all = hard.clone().drop_guard();
    let slots = Semaphore::new(settings.concurrency);
    let (prefetch, grace) = (settings.prefetch, settings.grace);
    let shared = Arc::new(Shared { settings, slots, hard: hard.clone() });
    let queue = shared.settings.queue.as_str();
    let mut tasks = Tasks::new();
    let mut stop = std::pin::pin!(stop);
    let (mut session, mut failures, mut window) = (0_u64, 0_u32, prefetch);
    let result = loop {
        let opened = tokio::select! {
            biased;
            () = &mut stop => break Ok(()),
            opened = tokio::time::timeout(CONNECT, open(&shared.settings)) => opened,
        };
        match opened {
            Ok(Ok((connection, channel))) => {
                info!(queue, "consuming");
                session += 1;
                failures = 0;
                let ending = CancellationToken::new();
                let mut one =
                    Session { shared: &shared, channel: &channel, number: session, ending: &ending };
                let ended = one.consume(&connection, window, &mut tasks, stop.as_mut()).await;
                ending.cancel();
                if let Ended::Torn(why) = ended {
                    warn!(queue, "the session with the broker is torn down: {why}");
                    window = 1;
                    // Acknowledgements that are under way must fail now, not on a connection that nobody looks at any more.
                    farewell(&connection).await;
                } else {
                    finish(&mut tasks, grace, &hard).await;
                    farewell(&connection).await;
                    break Ok(());
                }
            }
            Ok(Err(QueueError::Topology(error))) => break Err(error),
            other => {
                let error = match other {
                    Ok(Err(QueueError::Amqp(error))) => error.to_string(),
                    _ => format!("no answer within {CONNECT:?}"),
                };
                failures = failures.saturating_add(1);
                // Said once an outage.
                if failures == 1 {
                    warn!(queue, error, "the broker cannot be reached");
                } else {
                    debug!(queue, error, failures, "the broker still cannot be reached");
                }
            }
        }
        tokio::select! {
            biased;
            () = &mut stop => break Ok(()),
            () = tokio::time::sleep(work::after(RECONNECT, failures.max(1))) => {}
        }
    };
    // Handlers of torn sessions, too: what they do is committed or rolled back in order.
    finish(&mut tasks, grace, &hard).await;
    result
}

async fn open(settings: &Settings) -> Result<(Connection, Channel), QueueError> {
    let mut uri = settings.uri.clone();
    uri.query.heartbeat = Some(HEARTBEAT);
    let name = format!("holdfast consumer {}", settings.queue);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connection = Connection::connect_uri(uri, properties).await?;
    queue::ensure(&connection, settings).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

/// Without a close the broker would keep a half-open connection, and its deliveries, until the heartbeat runs out.
async fn farewell(connection: &Connection) {
    let _ = tokio::time::timeout(CLOSE, connection.close(200, "bye".into())).await;
}

/// Waits for what is in hand.
async fn finish(tasks: &mut Tasks, grace: Duration, hard: &CancellationToken) {
    let all = async |tasks: &mut Tasks| while tasks.join_next().await.is_some() {};
    if tokio::time::timeout(grace, all(tasks)).await.is_err() {
        warn!(handlers = tasks.len(), "the grace time is over: handlers are dropped and given back");
        hard.cancel();
        let _ = tokio::time::timeout(LAST_WORDS, all(tasks)).await;
    }
}

/// One channel's life.
struct Session<'a> {
    shared: &'a Arc<Shared>,
    channel: &'a Channel,
    number: u64,
    ending: &'a CancellationToken,
}

impl Session<'_> {
    async fn consume(
        &mut self,
        connection: &Connection,
        mut window: u16,
        tasks: &mut Tasks,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Ended {
        let most = self.shared.settings.prefetch;
        let mut consumer = match self.subscribe(window).await {
            Ok(consumer) => consumer,
            Err(error) => return Ended::Torn(format!("it cannot consume: {error}")),
        };
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                () = stop.as_mut() => {
                    // From now on nothing new; what was delivered and not begun is left, and returns with the channel's end.
                    let cancel = self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
                    let _ = tokio::time::timeout(CLOSE, cancel).await;
                    return Ended::Stopped;
                }
                delivery = consumer.next() => match delivery {
                    Some(Ok(delivery)) => self.take(delivery, tasks),
                    Some(Err(error)) => return Ended::Torn(error.to_string()),
                    None => return Ended::Torn("the broker cancelled the consumer".to_owned()),
                },
                Some(done) = tasks.join_next(), if !tasks.is_empty() => match done {
                    // Of an earlier session: its channel is gone anyway.
                    Ok((session, _)) if session != self.number => {}
                    Ok((_, End::Acknowledged)) if window < most => {
                        window = window.saturating_mul(2).min(most);
                        consumer = match self.widen(consumer, window, tasks).await {
                            Ok(consumer) => consumer,
                            Err(error) => return Ended::Torn(format!("it cannot consume on: {error}")),
                        };
                    }
                    Ok((_, End::Acknowledged | End::Left)) => {}
                    Ok((_, End::AckFailed)) => return Ended::Torn("an acknowledgement failed".to_owned()),
                    // Nobody would ever acknowledge what it had.
                    Err(error) => return Ended::Torn(format!("a delivery's task died: {error}")),
                },
                _ = look.tick() => {
                    if !(self.channel.status().connected() && connection.status().connected()) {
                        return Ended::Torn("the channel or its connection is gone".to_owned());
                    }
                }
            }
        }
    }

    async fn subscribe(&self, window: u16) -> lapin::Result<lapin::Consumer> {
        self.channel.basic_qos(window, BasicQosOptions::default()).await?;
        let queue = self.shared.settings.queue.clone();
        let options = BasicConsumeOptions::default();
        self.channel.basic_consume(queue, "".into(), options, FieldTable::default()).await
    }

    /// A consumer with a larger window in the place of one with a smaller: a quorum queue's cannot be changed.
    async fn widen(
        &self,
        mut old: lapin::Consumer,
        window: u16,
        tasks: &mut Tasks,
    ) -> lapin::Result<lapin::Consumer> {
        self.channel.basic_cancel(old.tag(), BasicCancelOptions::default()).await?;
        // What was on its way before the cancel.
        while let Some(delivery) = old.next().await {
            self.take(delivery?, tasks);
        }
        self.subscribe(window).await
    }

    /// A task for a delivery, which ends with its acknowledgement.
    fn take(&self, mut delivery: lapin::message::Delivery, tasks: &mut Tasks) {
        let queue = self.shared.settings.queue.as_str();
        let Some(message) = Message::new(queue, &mut delivery) else {
            warn!(
                queue,
                routing_key = delivery.routing_key.as_str(),
                "a message without a UUID as its message_id is rejected, so that the broker dead-letters it"
            );
            let number = self.number;
            tasks.spawn(async move { (number, acknowledge(&delivery, Verdict::Reject).await) });
            return;
        };
        let span = info_span!(
            "consume",
            queue,
            event.id = %message.id(),
            event.r#type = message.event_type(),
            traceparent = message.traceparent(),
            tracestate = message.tracestate(),
        );
        let (shared, number, ending) = (self.shared.clone(), self.number, self.ending.clone());
        let work = async move {
            let verdict = work::deliver(&shared, &message, &ending).await;
            (number, acknowledge(&delivery, verdict).await)
        };
        tasks.spawn(work.instrument(span));
    }
}

/// Tells the broker.
async fn acknowledge(delivery: &lapin::message::Delivery, verdict: Verdict) -> End {
    let told = match verdict {
        Verdict::Leave => return End::Left,
        Verdict::Ack => delivery.ack(BasicAckOptions::default()).await,
        Verdict::Reject => delivery.reject(BasicRejectOptions { requeue: false }).await,
    };
    match told {
        Ok(true) => End::Acknowledged,
        Ok(false) => End::AckFailed,
        Err(error) => {
            debug!(%error, "an acknowledgement failed");
            End::AckFailed
        }
    }
}
