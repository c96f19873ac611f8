//! Release N while N + 1 migrates: the real binary under load (design, section 11).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    caller::Caller,
    client::{Client, keyed},
    database::Database,
    scene::{SERVICE, Scene},
    wait::LONG,
};
use sqlx::Executor as _;

/// What the next release's first migration might be.
const NEXT: [&str; 4] = [
    "ALTER TABLE holdfast.event_outbox ADD COLUMN region text NOT NULL DEFAULT 'eu' CHECK (region <> '')",
    "CREATE TABLE holdfast.region (name text PRIMARY KEY)",
    "CREATE INDEX event_outbox_region ON holdfast.event_outbox (region) WHERE published_at IS NULL",
    "INSERT INTO holdfast.schema_migrations SELECT 101, 'region', now(), true, '\\x00', 1",
];

/// Transactions one after the other until told to stop, with one ticket and one event each; ids of those that committed.
fn load(client: Client, url: String, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let mut caller = Caller::connect(&url).await;
        let mut committed = Vec::new();
        while !stop.load(SeqCst) {
            let event = keyed("order.placed", "k");
            let ticket = caller.begin_with_ticket().await;
            // Any error fails the test.
            client.stage(ticket, std::slice::from_ref(&event)).await;
            caller.commit().await;
            committed.push(event.id);
        }
        caller.close().await;
        committed
    })
}

#[tokio::test]
async fn the_next_releases_additive_migration_loses_nothing_and_fails_no_call() {
    const MORE: &str = "has more than this release knows";
    let scene = Scene::builder().set("drain", "schema_check", "\"100ms\"").start_process().await;
    scene.logs.expect(MORE);
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..3)
        .map(|_| load(Client::new(scene.server.address(), SERVICE), scene.database.url(), stop.clone()))
        .collect();
    scene.consumer.wait_for(50, LONG).await;

    let mut migrator = scene.database.connect().await;
    for statement in NEXT {
        migrator.execute(statement).await.unwrap();
    }

    scene.logs.wait_for(MORE).await;
    scene.consumer.wait_for(scene.consumer.ids().len() + 50, LONG).await;
    stop.store(true, SeqCst);
    let mut committed = Vec::new();
    for load in loads {
        committed.extend(load.await.unwrap());
    }
    scene.consumer.wait_for_ids(&committed, LONG).await;
    scene.end(committed.len()).await;
}

#[tokio::test]
async fn a_migration_of_the_next_release_that_breaks_this_one_stops_its_service_alone_until_it_is_mended() {
    const SHUT: &str = "the service is not served until it is mended";
    let mut stage = Scene::builder().set("drain", "schema_check", "\"100ms\"").stage().await;
    let billing = Database::service().await;
    stage.config.service("billing", &billing.url());
    stage.logs.expect(SHUT);
    let server = holdfast_tests::server::ServerProcess::start(&stage.config).await;
    let client = Client::new(server.address(), SERVICE);
    let stop = Arc::new(AtomicBool::new(false));
    let neighbour = load(Client::new(server.address(), "billing"), billing.url(), stop.clone());
    stage.logs.wait_for("broker connected").await;

    // It contracts without having expanded.
    stage.database.run("ALTER TABLE holdfast.hold_outcome DROP COLUMN decided_at").await;

    stage.logs.wait_for(SHUT).await;
    let refused = client.try_stage_now(&[keyed("order.placed", "k")]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    let seen = stage.consumer.ids().len();
    stage.consumer.wait_for(seen + 20, LONG).await;
    stage
        .database
        .run(
            "ALTER TABLE holdfast.hold_outcome ADD COLUMN decided_at timestamptz NOT NULL DEFAULT now();
             CREATE INDEX hold_outcome_decided ON holdfast.hold_outcome (decided_at)",
        )
        .await;
    stage.logs.wait_for("the service is served").await;
    let event = keyed("order.placed", "k");
    client.stage_now(std::slice::from_ref(&event)).await;
    client.wait_for_state(&event.id, EventState::Published).await;
    stop.store(true, SeqCst);
    let committed = neighbour.await.unwrap();
    stage.consumer.wait_for_ids(&committed, LONG).await;
    let mut server = server;
    server.sigterm();
    assert!(server.exit_status(LONG).await.success());
    stage.logs.check();
}
