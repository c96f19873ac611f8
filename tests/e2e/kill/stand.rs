//! What stands around a kill: two replicas of the real binary, of which the standby is stopped (SIGSTOP) until the kill,
//! so that it is known which of them is at the step.

use holdfast_proto::v1::Event;
use holdfast_tests::{
    caller::{Caller, CallerProcess},
    chaos::Proxy,
    client::Client,
    consumer::Consumer,
    database::{Database, Kind},
    logs::Logs,
    reconcile::{Census, reconcile},
    server::{EXCHANGE, ServerConfig, ServerProcess},
    services::{BrokerAt, PostgresAt},
    vhost::Vhost,
    wait::{self, LONG},
};
use sqlx::PgConnection;

use super::gate;

/// The service of the stands that have only one.
pub(super) const ORDERS: &str = "orders";

/// What is to be set up.
pub(super) struct Setup<'a> {
    pub postgres: PostgresAt,
    pub broker: BrokerAt,
    pub services: &'a [&'a str],
    /// Claims heal within seconds; else they outlive the test, and nothing but the killed party moves a row.
    pub short_leases: bool,
}

impl Setup<'_> {
    /// On the shared servers.
    pub(super) fn shared(short_leases: bool) -> Self {
        Self { postgres: PostgresAt::shared(), broker: BrokerAt::shared(), services: &[ORDERS], short_leases }
    }
}

/// One service: its database with gates, and the drain lock if the test holds it.
pub(super) struct Place {
    pub service: String,
    pub database: Database,
    pub drain_lock: Option<PgConnection>,
}

impl Place {
    /// Where an id's row stands: `None` without a row.
    pub(super) async fn state(&self, id: &str) -> String {
        let sql = format!(
            "SELECT coalesce((SELECT CASE WHEN ticket IS NOT NULL THEN 'unresolved'
                                          WHEN published_at IS NOT NULL THEN 'published'
                                          WHEN claimed_at IS NOT NULL THEN 'claimed'
                                          ELSE 'pending' END
                              FROM holdfast.event_outbox WHERE id = '{id}'), 'none')"
        );
        self.database.one(&sql).await
    }

    /// Waits for that.
    pub(super) async fn is(&self, id: &str, state: &str) {
        wait::until_equal(&format!("event {id}"), LONG, state.to_owned(), || self.state(id)).await;
    }

    /// Waits until nothing moves, and reconciles (invariant 2).
    pub(super) async fn settled(&self) -> Census {
        let census = wait::until("the outbox to settle", LONG, || async {
            let census = Census::take(&self.database).await;
            if census.moving() == 0 { Ok(census) } else { Err(census) }
        })
        .await;
        reconcile(&self.database, usize::try_from(census.accounted()).unwrap()).await
    }
}

/// Everything. (The fields are dropped in this order: who connects goes first.)
pub(super) struct Stand {
    pub front: ServerProcess,
    pub standby: ServerProcess,
    pub consumer: Consumer,
    /// Between the front and the broker; the standby goes straight.
    pub proxy: Proxy,
    pub front_config: ServerConfig,
    pub standby_config: ServerConfig,
    pub places: Vec<Place>,
    pub logs: Logs,
    _control: Database,
    _vhost: Vhost,
}

impl Stand {
    /// With the standby stopped.
    pub(super) async fn start(setup: Setup<'_>) -> Self {
        let stand = Self::start_both(setup).await;
        stand.stop_standby().await;
        stand
    }

    /// With both replicas at work.
    pub(super) async fn start_both(setup: Setup<'_>) -> Self {
        let logs = Logs::capture();
        let vhost = Vhost::fresh_on(setup.broker).await;
        let proxy = Proxy::before(setup.broker.port).await;
        let control = Database::fresh(setup.postgres, Kind::Control).await;
        let mut config = ServerConfig::new(&control.url(), &vhost.url());
        // The gates are triggers that are not the release's.
        config.set("drain", "poll", "\"200ms\"").set("drain", "schema_check", "\"0s\"");
        if setup.short_leases {
            config.set("drain", "lease", "\"3s\"").set("broker", "confirm_timeout", "\"1s\"");
        }
        let mut places = Vec::new();
        for service in setup.services {
            let database = Database::fresh(setup.postgres, Kind::Service).await;
            gate::build(&database).await;
            config.service(service, &database.url());
            places.push(Place { service: (*service).to_owned(), database, drain_lock: None });
        }
        let consumer = Consumer::bound(&vhost.url(), EXCHANGE, "#").await;
        let standby_config = config.clone();
        let mut front_config = config;
        front_config.text("broker", "url", &vhost.url_through(proxy.port()));
        let (front, standby) =
            tokio::join!(ServerProcess::start(&front_config), ServerProcess::start(&standby_config));
        let (_control, _vhost) = (control, vhost);
        Self { front, standby, consumer, proxy, front_config, standby_config, places, logs, _control, _vhost }
    }

    /// Stops the standby where it holds nothing. (Stopped in a transaction it would keep its locks, the drain lock
    /// perhaps, until PostgreSQL ends the idle transaction.)
    async fn stop_standby(&self) {
        wait::until("the standby to stop outside of a transaction", LONG, || async {
            self.standby.sigstop().await;
            // The front is idle too; two looks, so that what was on its way to a session has arrived there.
            for _ in 0..2 {
                for place in &self.places {
                    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                                   AND application_name = 'holdfast' AND state <> 'idle'";
                    let busy: i64 = place.database.one(busy).await;
                    if busy > 0 {
                        self.standby.sigcont();
                        return Err(busy);
                    }
                }
            }
            Ok(())
        })
        .await;
    }

    /// The only service, or the first.
    pub(super) fn place(&self) -> &Place {
        &self.places[0]
    }

    /// A client of the front.
    pub(super) fn front_client(&self, place: &Place) -> Client {
        Client::new(self.front.address(), &place.service)
    }

    /// A client of the standby.
    pub(super) fn standby_client(&self, place: &Place) -> Client {
        Client::new(self.standby.address(), &place.service)
    }

    /// A caller in a process of its own, that stages with the front.
    pub(super) fn caller(&self, place: &Place) -> CallerProcess {
        CallerProcess::spawn(&place.database.url(), &self.front.address().to_string(), &place.service)
    }

    /// Stages an event in a transaction of its own that commits, and hints.
    pub(super) async fn commit(&self, place: &Place, client: &Client, event: &Event) -> String {
        let mut caller = Caller::connect(&place.database.url()).await;
        let ticket = caller.begin_with_ticket().await;
        client.stage(ticket, std::slice::from_ref(event)).await;
        caller.commit().await;
        client.confirm(ticket).await;
        caller.close().await;
        event.id.clone()
    }

    /// How often an event has come so far.
    pub(super) fn deliveries(&self, id: impl ToString) -> usize {
        let id = id.to_string();
        self.consumer.ids().iter().filter(|seen| **seen == id).count()
    }

    /// Asserts that these events have come, and for the first time in this order.
    pub(super) fn first_came_in_order(&self, ids: &[String]) {
        let seen = self.consumer.ids();
        let first: Vec<_> = ids.iter().map(|id| seen.iter().position(|one| one == id)).collect();
        assert!(
            first.iter().all(Option::is_some) && first.is_sorted(),
            "first deliveries of {ids:?} at {first:?}"
        );
    }

    /// Everything that was in the way is gone: gates open, the drain lock is free, the proxy passes.
    pub(super) async fn thaw(&mut self) {
        for place in &mut self.places {
            place.drain_lock = None;
            gate::open_all(&place.database).await;
        }
        self.proxy.pass().await;
    }

    /// Stops what runs, in order, and checks the log.
    pub(super) async fn end(mut self) {
        for server in [&mut self.front, &mut self.standby] {
            server.sigterm();
        }
        for server in [&mut self.front, &mut self.standby] {
            let status = server.exit_status(LONG).await;
            // One that was killed was killed by us.
            assert!(status.success() || status.code().is_none(), "a server ended with {status}");
        }
        self.logs.check();
    }
}
