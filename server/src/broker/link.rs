//! The publishing connection and its supervisor.
//!
//! lapin's own recovery is not used: a dead connection is dropped whole and a new one built, with jittered back-off, for
//! ever. Its state is a watch value; nobody waits for it while holding anything.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lapin::options::{BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties, Event, ExchangeKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Weather;
use super::topology::Topology;
use crate::backoff::Backoff;
use crate::metrics;

const RECONNECT: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// How to reach the broker.
#[derive(Clone)]
pub struct LinkOptions {
    /// `amqp://user:password@host:port/vhost`.
    pub uri: AMQPUri,
    /// The topic exchange events are published to; declared when missing, if the account may.
    pub exchange: ShortString,
    /// A dead peer is noticed after two of these. Well below the claim's lease.
    pub heartbeat: Duration,
    /// Most time for a connection, a channel or a declaration.
    pub connect_timeout: Duration,
}

/// A handle to the supervised connection. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    current: watch::Receiver<Option<Arc<Connection>>>,
    weather: watch::Receiver<Weather>,
    responsive: watch::Receiver<bool>,
    options: Arc<LinkOptions>,
}

impl Link {
    /// Starts the supervisor on `tracker`'s runtime; it ends, connection closed, after `shutdown`.
    pub fn start(
        options: LinkOptions,
        metrics: metrics::Broker,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (connection_out, current) = watch::channel(None);
        let (weather_out, weather) = watch::channel(Weather::Away);
        let (responsive_out, responsive) = watch::channel(false);
        let options = Arc::new(options);
        let supervisor =
            Supervisor { options: options.clone(), connection_out, weather_out, responsive_out, metrics };
        (Self { current, weather, responsive, options }, supervisor.run(shutdown))
    }

    /// The broker's weather, to watch.
    pub fn weather(&self) -> watch::Receiver<Weather> {
        self.weather.clone()
    }

    /// Whether the broker answers, to watch. A dead peer is noticed by the heartbeat, after two of them; this is sooner, and
    /// nothing but health depends on it.
    pub fn responsive(&self) -> watch::Receiver<bool> {
        self.responsive.clone()
    }

    /// Opens a channel in confirm mode on the current connection, the exchange being there.
    ///
    /// # Errors
    /// No connection, no answer in time, or the broker's refusal; the text names the exchange where it is the cause.
    pub(super) async fn confirm_channel(&self) -> Result<Channel, LinkError> {
        let connection = self.current.borrow().clone().ok_or(LinkError::Away)?;
        let limit = self.options.connect_timeout;
        tokio::time::timeout(limit, async {
            self.ensure_exchange(&connection).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        })
        .await
        .unwrap_or(Err(LinkError::TimedOut(limit)))
    }

    /// The same for dead letters, their topology being there.
    ///
    /// # Errors
    /// As [`Link::confirm_channel`]; the text names the object where one is the cause.
    pub(super) async fn letter_channel(&self, topology: &Topology) -> Result<Channel, LinkError> {
        let connection = self.current.borrow().clone().ok_or(LinkError::Away)?;
        let limit = self.options.connect_timeout;
        tokio::time::timeout(limit, async {
            topology.ensure(&connection).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        })
        .await
        .unwrap_or(Err(LinkError::TimedOut(limit)))
    }

    pub(super) fn exchange(&self) -> ShortString {
        self.options.exchange.clone()
    }

    /// Checks passively first: an account that may not configure may still publish. A failed check closes its channel,
    /// so each step has one of its own.
    async fn ensure_exchange(&self, connection: &Connection) -> Result<(), LinkError> {
        let name = self.options.exchange.clone();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let passive = ExchangeDeclareOptions { passive: true, ..durable };
        let probe = connection.create_channel().await?;
        let there = probe
            .exchange_declare(name.clone(), ExchangeKind::Topic, passive, FieldTable::default())
            .await
            .is_ok();
        if there {
            // An answer to a close is of no use to us; the channel goes with its connection at the latest.
            let _ = probe.close(200, "".into()).await;
            return Ok(());
        }
        let declare = connection.create_channel().await?;
        declare
            .exchange_declare(name.clone(), ExchangeKind::Topic, durable, FieldTable::default())
            .await
            .map_err(|error| LinkError::Exchange { name: name.to_string(), error })?;
        let _ = declare.close(200, "".into()).await;
        Ok(())
    }
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("no connection to the broker")]
    Away,
    #[error("the broker did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("exchange {name:?} is missing or of another kind, and declaring it was refused: {error}")]
    Exchange { name: String, error: lapin::Error },
    /// The operator's to mend.
    #[error("{0}")]
    Topology(String),
    #[error("broker: {0}")]
    Amqp(#[from] lapin::Error),
}

/// With its patience below ten seconds, within which health must tell.
const ASK_EVERY: Duration = Duration::from_millis(2_500);
const ASK_PATIENCE: Duration = Duration::from_secs(5);

/// A question that any broker answers and that changes nothing: no limit to what is not consumed anyway.
async fn ask(connection: &Connection, channel: Option<Channel>) -> Result<Channel, lapin::Error> {
    let channel = match channel.filter(|channel| channel.status().connected()) {
        Some(channel) => channel,
        None => connection.create_channel().await?,
    };
    channel.basic_qos(0, BasicQosOptions::default()).await?;
    Ok(channel)
}

struct Supervisor {
    options: Arc<LinkOptions>,
    connection_out: watch::Sender<Option<Arc<Connection>>>,
    weather_out: watch::Sender<Weather>,
    responsive_out: watch::Sender<bool>,
    metrics: metrics::Broker,
}

impl Supervisor {
    async fn run(self, shutdown: CancellationToken) {
        let mut failures = 0_u32;
        loop {
            let connected = tokio::select! {
                () = shutdown.cancelled() => return,
                connected = self.connect() => connected,
            };
            match connected {
                Ok(connection) => {
                    info!(broker.vhost = %connection.status().vhost(), "broker connected");
                    failures = 0;
                    self.metrics.connections.inc();
                    self.watch(Arc::new(connection), &shutdown).await;
                    if shutdown.is_cancelled() {
                        return;
                    }
                }
                // Said once an outage; the gauge tells how long it lasts.
                Err(error) if failures == 0 => {
                    self.metrics.failures.inc();
                    failures = 1;
                    warn!(%error, "broker cannot be reached; events wait in their outboxes");
                }
                Err(error) => {
                    self.metrics.failures.inc();
                    failures = failures.saturating_add(1);
                    debug!(%error, failures, "broker still cannot be reached");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RECONNECT.after(failures.max(1))) => {}
            }
        }
    }

    async fn connect(&self) -> Result<Connection, LinkError> {
        let mut uri = self.options.uri.clone();
        uri.query.heartbeat = Some(u16::try_from(self.options.heartbeat.as_secs()).unwrap_or(u16::MAX));
        let properties = ConnectionProperties::default().with_connection_name("holdfast publisher".into());
        let limit = self.options.connect_timeout;
        tokio::time::timeout(limit, Connection::connect_uri(uri, properties))
            .await
            .map_err(|_| LinkError::TimedOut(limit))?
            .map_err(LinkError::from)
    }

    /// Publishes the connection's state until it ends or the server stops; leaves it closed.
    async fn watch(&self, connection: Arc<Connection>, shutdown: &CancellationToken) {
        let mut events = Box::pin(connection.events_listener());
        self.connection_out.send_replace(Some(connection.clone()));
        self.set_weather(Weather::Fair);
        self.set_responsive(true);
        let mut asking = Box::pin(self.ask_on(&connection));
        // Not every end of a connection is an event; its status is looked at as well.
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                event = events.next() => match event {
                    Some(Event::ConnectionBlocked(reason)) => {
                        warn!(reason, "broker blocks publishing; events wait in their outboxes");
                        self.set_weather(Weather::Blocked);
                    }
                    Some(Event::ConnectionUnblocked) => {
                        info!("broker takes messages again");
                        self.set_weather(Weather::Fair);
                    }
                    Some(Event::Error(error)) => debug!(%error, "event on the broker connection"),
                    Some(_) => {}
                    None => break,
                },
                _ = look.tick() => {}
                () = &mut asking => {}
            }
            if !connection.status().connected() {
                break;
            }
        }
        self.connection_out.send_replace(None);
        self.set_weather(Weather::Away);
        self.set_responsive(false);
        drop(asking);
        if !shutdown.is_cancelled() {
            warn!("broker connection lost; events wait in their outboxes");
        }
        // Without a close the broker would keep a half-open one until its heartbeat runs out.
        let _ = tokio::time::timeout(Duration::from_secs(2), connection.close(200, "bye".into())).await;
    }

    /// Asks the broker for a sign of life again and again, on a channel of its own. Never ends.
    async fn ask_on(&self, connection: &Connection) {
        let mut channel = None;
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            // It would not read the question, and that it blocks is known.
            if *self.weather_out.borrow() == Weather::Fair {
                let mut asking = Box::pin(ask(connection, channel.take()));
                let answer = match tokio::time::timeout(ASK_PATIENCE, &mut asking).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        self.set_responsive(false);
                        // The same question: others would only queue up behind it.
                        asking.await
                    }
                };
                match answer {
                    Ok(open) => {
                        self.set_responsive(true);
                        channel = Some(open);
                    }
                    Err(error) => debug!(%error, "no answer from the broker"),
                }
            }
        }
    }

    fn set_responsive(&self, responsive: bool) {
        self.metrics.responsive.set(i64::from(responsive));
        self.responsive_out.send_replace(responsive);
    }

    fn set_weather(&self, weather: Weather) {
        self.metrics.connected.set(i64::from(weather != Weather::Away));
        self.metrics.blocked.set(i64::from(weather == Weather::Blocked));
        self.weather_out.send_replace(weather);
    }
}
