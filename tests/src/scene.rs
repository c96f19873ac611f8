//! The common test in one line: databases, vhost, server, client and consumer, all of the test's own.
//!
//! ```text
//! let scene = Scene::start().await;
//! let id = scene.commit(&keyed("order.placed", "k")).await;
//! scene.consumer.wait_for_ids(&[id], LONG).await;
//! scene.end(1).await; // one row was staged: reconciles, stops, checks the log
//! ```

use std::net::SocketAddr;

use holdfast_proto::v1::Event;

use crate::{
    caller::{Caller, CallerProcess},
    chaos::Proxy,
    client::{Client, event, keyed},
    consumer::Consumer,
    database::{Database, Kind},
    logs::Logs,
    reconcile::{Census, settled},
    server::{EXCHANGE, ServerConfig, ServerInProcess, ServerProcess},
    services::{BrokerAt, PostgresAt},
    vhost::Vhost,
    wait,
};

/// What the server says once it has reached the broker. A scene begins there: a test that stalls the broker a moment later
/// means a broker that was there.
const CONNECTED: &str = "broker connected";

/// The service of all scenes.
pub const SERVICE: &str = "orders";

/// The queues that it consumes from.
pub const QUEUES: [&str; 2] = ["orders.payments", "orders.audit"];

/// What is to be set up; everything has a default.
#[derive(Debug)]
pub struct Builder {
    postgres: Option<PostgresAt>,
    broker: Option<BrokerAt>,
    database_proxy: bool,
    broker_proxy: bool,
    settings: Vec<(String, String, String)>,
}

impl Builder {
    /// On this PostgreSQL instead of the shared one.
    #[must_use]
    pub fn on_postgres(mut self, postgres: PostgresAt) -> Self {
        self.postgres = Some(postgres);
        self
    }

    /// On this RabbitMQ instead of the shared one.
    #[must_use]
    pub fn on_broker(mut self, broker: BrokerAt) -> Self {
        self.broker = Some(broker);
        self
    }

    /// The server reaches the service's database through [`Stage::database_proxy`]; the test goes straight.
    #[must_use]
    pub fn with_database_proxy(mut self) -> Self {
        self.database_proxy = true;
        self
    }

    /// The server reaches the broker through [`Stage::broker_proxy`]; the test goes straight.
    #[must_use]
    pub fn with_broker_proxy(mut self) -> Self {
        self.broker_proxy = true;
        self
    }

    /// A setting of the server, see [`ServerConfig::set`].
    #[must_use]
    pub fn set(mut self, section: &str, name: &str, toml: &str) -> Self {
        self.settings.push((section.to_owned(), name.to_owned(), toml.to_owned()));
        self
    }

    /// Everything but a server and a client.
    pub async fn stage(self) -> Stage {
        let logs = Logs::capture();
        let postgres = self.postgres.unwrap_or_else(PostgresAt::shared);
        let broker = self.broker.unwrap_or_else(BrokerAt::shared);
        let ((database, control), vhost) = tokio::join!(
            // One after the other: two clones at once only wait for each other.
            async {
                let database = Database::fresh(postgres, Kind::Service).await;
                (database, Database::fresh(postgres, Kind::Control).await)
            },
            Vhost::fresh_on(broker)
        );
        let database_proxy =
            if self.database_proxy { Some(Proxy::before(postgres.port).await) } else { None };
        let broker_proxy = if self.broker_proxy { Some(Proxy::before(broker.port).await) } else { None };
        let url = database_proxy
            .as_ref()
            .map_or_else(|| database.url(), |proxy| database.url_through(proxy.port()));
        let amqp = broker_proxy.as_ref().map_or_else(|| vhost.url(), |proxy| vhost.url_through(proxy.port()));
        let mut config = ServerConfig::new(&control.url(), &amqp);
        config.service(SERVICE, &url);
        config.set(&format!("services.{SERVICE}"), "consumer_queues", &format!("{QUEUES:?}"));
        for (section, name, toml) in &self.settings {
            config.set(section, name, toml);
        }
        let consumer = Consumer::bound(&vhost.url(), EXCHANGE, "#").await;
        Stage { consumer, database_proxy, broker_proxy, vhost, database, control, config, logs }
    }

    /// With a server in this process.
    pub async fn start(self) -> Scene<ServerInProcess> {
        let scene = self.stage().await.start().await;
        scene.logs.wait_for(CONNECTED).await;
        scene
    }

    /// With the real binary in a process of its own.
    pub async fn start_process(self) -> Scene<ServerProcess> {
        let stage = self.stage().await;
        let server = ServerProcess::start(&stage.config).await;
        stage.logs.wait_for(CONNECTED).await;
        Scene::of(stage, server)
    }
}

/// What a server needs around it. (The fields are dropped in this order: who connects goes first.)
#[derive(Debug)]
pub struct Stage {
    /// Gets every event of the exchange.
    pub consumer: Consumer,
    /// Between server and service database, if asked for.
    pub database_proxy: Option<Proxy>,
    /// Between server and broker, if asked for.
    pub broker_proxy: Option<Proxy>,
    /// The vhost.
    pub vhost: Vhost,
    /// The service's database.
    pub database: Database,
    /// The control database.
    pub control: Database,
    /// The server's configuration.
    pub config: ServerConfig,
    /// The test's log.
    pub logs: Logs,
}

impl Stage {
    /// A server in this process on it: for tests that prepare the databases before any server connects.
    pub async fn start(self) -> Scene<ServerInProcess> {
        let server = ServerInProcess::start(&self.config).await;
        Scene::of(self, server)
    }

    /// A caller on the service's database, past any proxy.
    pub async fn caller(&self) -> Caller {
        Caller::connect(&self.database.url()).await
    }

    /// The proxy before the service's database.
    ///
    /// # Panics
    /// When none was asked for.
    pub fn database_proxy(&self) -> &Proxy {
        self.database_proxy.as_ref().expect("a scene with a database proxy")
    }

    /// The proxy before the broker.
    ///
    /// # Panics
    /// When none was asked for.
    pub fn broker_proxy(&self) -> &Proxy {
        self.broker_proxy.as_ref().expect("a scene with a broker proxy")
    }
}

/// A server of either sort.
pub trait Server {
    /// Where it listens.
    fn address(&self) -> SocketAddr;
    /// Stops it in order.
    fn stop(self) -> impl Future<Output = ()>;
}

impl Server for ServerInProcess {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    async fn stop(self) {
        self.stop().await;
    }
}

impl Server for ServerProcess {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    async fn stop(mut self) {
        self.sigterm();
        let status = self.exit_status(wait::LONG).await;
        assert!(status.success(), "the server ended with {status}");
    }
}

/// A stage with a server, a client of it, and the short words of tests. Must be ended with [`Scene::end`].
#[derive(Debug)]
pub struct Scene<S: Server = ServerInProcess> {
    /// The client, for [`SERVICE`].
    pub client: Client,
    /// The server.
    pub server: S,
    stage: Stage,
    ended: Unended,
}

impl Scene {
    /// With all defaults.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// With some things different.
    pub fn builder() -> Builder {
        Builder {
            postgres: None,
            broker: None,
            database_proxy: false,
            broker_proxy: false,
            settings: Vec::new(),
        }
    }
}

impl<S: Server> std::ops::Deref for Scene<S> {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl<S: Server> Scene<S> {
    fn of(stage: Stage, server: S) -> Self {
        let client = Client::new(server.address(), SERVICE);
        Self { client, server, stage, ended: Unended }
    }

    /// A caller in a process of its own.
    pub fn caller_process(&self) -> CallerProcess {
        CallerProcess::spawn(&self.database.url(), &self.server.address().to_string(), SERVICE)
    }

    /// Stages one event in a transaction of its own that commits; returns its id.
    pub async fn commit(&self, event: &Event) -> String {
        self.commit_all(std::slice::from_ref(event)).await;
        event.id.clone()
    }

    /// Stages events in one transaction of their own that commits, and hints.
    pub async fn commit_all(&self, events: &[Event]) {
        let mut caller = self.caller().await;
        let ticket = caller.begin_with_ticket().await;
        self.client.stage(ticket, events).await;
        caller.commit().await;
        self.client.confirm(ticket).await;
        caller.close().await;
    }

    /// Stages events in one transaction of their own that rolls back, and hints.
    pub async fn roll_back_all(&self, events: &[Event]) {
        let mut caller = self.caller().await;
        let ticket = caller.begin_with_ticket().await;
        self.client.stage(ticket, events).await;
        caller.rollback().await;
        self.client.confirm(ticket).await;
        caller.close().await;
    }

    /// Commits a marker, for [`Consumer::assert_only`]; it counts as one staged row.
    pub async fn marker(&self, key: Option<&str>) -> String {
        let kind = "test.marker";
        self.commit(&key.map_or_else(|| event(kind), |key| keyed(kind, key))).await
    }

    /// Replaces the server by a new one (of the same configuration, say) and the client with it; the old one is
    /// handed back.
    pub fn replace_server(&mut self, server: S) -> S {
        self.client = Client::new(server.address(), SERVICE);
        std::mem::replace(&mut self.server, server)
    }

    /// The end of a test: waits until nothing moves, reconciles with the number of rows that were ever staged, stops
    /// the server in order, and checks the log.
    ///
    /// # Panics
    /// When rows are unaccounted for, or the log holds what was not announced.
    pub async fn end(self, staged: usize) -> Census {
        let census = settled(&self.database, staged, wait::LONG).await;
        wait::until_equal("claims that nobody closed", wait::LONG, 0_i64, || async {
            self.database.one("SELECT count(*) FROM holdfast.outbox_claim").await
        })
        .await;
        self.end_as_it_is().await;
        census
    }

    /// Stops the server in order and checks the log, wherever the rows are.
    ///
    /// # Panics
    /// When the log holds what was not announced.
    pub async fn end_as_it_is(self) {
        let Self { client, server, stage, ended } = self;
        drop(client);
        server.stop().await;
        stage.logs.check();
        std::mem::forget(ended);
    }
}

/// Fails a test that forgets to end its scene: nobody would have looked at its log.
#[derive(Debug)]
struct Unended;

impl Drop for Unended {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "this test does not call Scene::end");
    }
}
