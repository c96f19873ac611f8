//! One service's database in trouble is nobody else's (design, sections 1 and 13): whatever ails it, at start or later, the
//! other services go on staging and delivering, and the service itself comes back without a restart.
//!
//! The scene's own service is the healthy one. Its neighbour [`BILLING`] is reached through a proxy of its own.

mod ailments;
mod connections;
mod idle;
mod pooler;
mod standby;

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    caller::Caller,
    chaos::Proxy,
    client::{Client, event},
    database::{Database, Kind},
    scene::{Scene, Server, Stage},
    services::PostgresAt,
    wait::LONG,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

/// The service with the ailing database.
const BILLING: &str = "billing";
/// All lines of its log.
const ITS_LINES: &str = "service.name=billing";

/// The neighbour's database and the way to it.
struct Neighbour {
    database: Database,
    proxy: Proxy,
}

impl Neighbour {
    /// Adds it to a server that is not started yet.
    async fn join(stage: &mut Stage) -> Self {
        let neighbour = Self::on(PostgresAt::shared()).await;
        stage.config.service(BILLING, &neighbour.database.url_through(neighbour.proxy.port()));
        stage.logs.expect(ITS_LINES);
        neighbour
    }

    async fn on(postgres: PostgresAt) -> Self {
        let database = Database::fresh(postgres, Kind::Service).await;
        let proxy = Proxy::before(postgres.port).await;
        Self { database, proxy }
    }

    /// A committed event, written as `publish_in_tx` would, past the proxy.
    async fn put(&self) -> String {
        let id = Uuid::now_v7().to_string();
        self.database
            .run(&format!(
                "INSERT INTO holdfast.event_outbox (id, event_type, envelope)
                 VALUES ('{id}', 'invoice.sent', jsonb_build_object('id', '{id}', 'type', 'invoice.sent'))"
            ))
            .await;
        id
    }

    /// It works whole: an event is staged through the server, committed and delivered.
    async fn works<S: Server>(&self, scene: &Scene<S>) {
        let one = event("invoice.paid");
        let mut caller = Caller::connect(&self.database.url()).await;
        let ticket = caller.begin_with_ticket().await;
        let client = client(scene);
        client.stage(ticket, std::slice::from_ref(&one)).await;
        caller.commit().await;
        client.confirm(ticket).await;
        scene.consumer.wait_for_ids(&[one.id], LONG).await;
    }
}

fn client<S: Server>(scene: &Scene<S>) -> Client {
    Client::new(scene.server.address(), BILLING)
}

/// What the neighbour's callers are told while its database is away; under a ticket that nobody holds.
async fn refusal<S: Server>(scene: &Scene<S>) -> Status {
    client(scene).try_stage(7, &[event("invoice.paid")]).await.unwrap_err()
}

/// UNAVAILABLE, for this reason, naming the service whose database it is.
fn assert_unavailable(status: &Status, reason: &str) {
    let info = status.get_details_error_info().unwrap();
    let named = info.metadata.get("service").map(String::as_str);
    assert_eq!((status.code(), info.reason.as_str(), named), (Code::Unavailable, reason, Some(BILLING)));
    assert!(status.message().contains(BILLING), "{}", status.message());
}

/// The healthy service stages and delivers; returns how many events.
async fn others_flow<S: Server>(scene: &Scene<S>) -> usize {
    const EVENTS: usize = 5;
    for _ in 0..EVENTS {
        let id = scene.commit(&event("order.placed")).await;
        scene.client.wait_for_state(&id, EventState::Published).await;
    }
    EVENTS
}

fn delivered<S: Server>(scene: &Scene<S>, id: &str) -> bool {
    scene.consumer.ids().iter().any(|seen| seen == id)
}

/// However long it lasts, each of its two loops says it once.
fn assert_said_once<S: Server>(scene: &Scene<S>) {
    for what in ["service database cannot be drained", "resolver cannot reach its database"] {
        let lines = scene.logs.with(what);
        let warnings =
            lines.iter().filter(|line| line.level == tracing::Level::WARN && line.text.contains(ITS_LINES));
        assert!(warnings.count() <= 1, "{lines:#?}");
    }
}
