//! A running server whose service's schema breaks: that service is shut, the others are not, and it heals by itself.

use holdfast_proto::v1::{EventState, GetServiceRequest, control_service_client::ControlServiceClient};
use holdfast_tests::{
    auth::{self, Bearer},
    client::{Client, channel, event},
    database::{Database, Kind},
    health::Health,
    scene::{SERVICE, Scene},
    services::PostgresAt,
    wait::{self, LONG},
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::staging::refusal;

const SHUT: &str = "the service is not served until it is mended";
const HEALED: &str = "the service is served";

#[tokio::test]
async fn a_service_whose_schema_breaks_is_shut_alone_and_heals_without_a_restart() {
    let mut stage = Scene::builder().set("drain", "schema_check", "\"200ms\"").stage().await;
    let billing = Database::service().await;
    stage.config.service("billing", &billing.url());
    let scene = stage.start().await;
    let (health, neighbour) =
        (Health::of(scene.server.address()), Client::new(scene.server.address(), "billing"));
    let drifted = |class: &str| {
        scene.server.metric("holdfast_schema_drift", &format!("class=\"{class}\",service=\"{SERVICE}\""))
    };
    health.serves("service/orders").await;
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    assert!(drifted("breaking") < 0.5);
    scene.logs.expect(SHUT);

    // Nothing of the drain's needs it, so only the gate can be what stops it.
    scene.database.run("DROP INDEX holdfast.hold_outcome_decided").await;
    let line = scene.logs.wait_for(SHUT).await.text;

    assert!(line.contains("index holdfast.hold_outcome_decided is missing"), "{line}");
    health.does_not_serve("service/orders").await;
    assert!((drifted("breaking") - 1.0).abs() < 0.5);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let status = scene.client.try_stage(ticket, &[event("order.placed")]).await.unwrap_err();
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["difference"], "index holdfast.hold_outcome_decided is missing");
    assert_eq!(info.metadata["applied"], "no");
    assert!(status.message().contains("index holdfast.hold_outcome_decided is missing"), "{status}");
    assert_eq!(refusal::<()>(Err(status)), (Code::FailedPrecondition, "SCHEMA_DRIFT".to_owned()));
    let looked = scene.client.get(&before).await;
    assert_eq!(refusal(looked), (Code::FailedPrecondition, "SCHEMA_DRIFT".to_owned()));
    caller.rollback().await;
    // What it is, is told from memory.
    let bearer = Bearer::new(&auth::token(&auth::all_of(SERVICE)));
    let mut control = ControlServiceClient::new(bearer.over(channel(scene.server.address())));
    let told =
        control.get_service(GetServiceRequest { service: SERVICE.to_owned() }).await.unwrap().into_inner();
    assert!(told.health.unwrap().why.contains("hold_outcome_decided"));
    // Put in by SQL, it waits, while the neighbour's goes out.
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope)
             VALUES ('0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11', 'order.waits',
                     '{\"id\": \"0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11\", \"type\": \"order.waits\"}')",
        )
        .await;
    for _ in 0..3 {
        let other = event("bill.sent");
        neighbour.stage_now(std::slice::from_ref(&other)).await;
        neighbour.wait_for_state(&other.id, EventState::Published).await;
    }
    health.serves("service/billing").await;
    assert_eq!(
        scene.database.one::<i64>("SELECT sum(claim_generation)::bigint FROM holdfast.event_outbox WHERE event_type = 'order.waits'").await,
        0
    );
    // Verdicts are written all the same.
    let lost = "SELECT count(*) FROM holdfast.event_outbox WHERE ticket IS NOT NULL";
    wait::until_equal("undecided rows", LONG, 0_i64, || scene.database.one(lost)).await;

    scene.database.run("CREATE INDEX hold_outcome_decided ON holdfast.hold_outcome (decided_at)").await;

    scene.logs.wait_for(HEALED).await;
    health.serves("service/orders").await;
    scene.client.wait_for_state("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11", EventState::Published).await;
    assert!(drifted("breaking") < 0.5);
    assert_eq!(scene.logs.with(SHUT).len(), 1, "said once");
    scene.end(2).await;
}

#[tokio::test]
async fn more_than_this_release_knows_is_said_once_counted_and_served() {
    const MORE: &str = "has more than this release knows";
    let stage = Scene::builder().set("drain", "schema_check", "\"50ms\"").stage().await;
    stage.database.run("ALTER TABLE holdfast.event_outbox ADD COLUMN region text").await;
    stage.logs.expect(MORE);
    let scene = stage.start().await;

    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;

    let line = scene.logs.wait_for(MORE).await.text;
    assert!(line.contains("event_outbox.region"), "{line}");
    let counted = scene.server.metric("holdfast_schema_drift", "class=\"additive\",service=\"orders\"");
    assert!((counted - 1.0).abs() < 0.5);
    let looks = || scene.server.metric("holdfast_schema_looked_timestamp_seconds", "service=\"orders\"");
    let first = looks();
    wait::until("another look", LONG, || {
        std::future::ready(if looks() > first { Ok(()) } else { Err(first) })
    })
    .await;
    assert_eq!(scene.logs.with(MORE).len(), 1);
    scene.end(1).await;
}

#[tokio::test]
async fn a_column_that_goes_is_noticed_by_the_statement_that_fails_long_before_the_next_look() {
    // (The next look would be in five minutes.)
    let scene = Scene::start().await;
    scene.logs.expect(SHUT);
    scene.logs.expect("resolver cannot reach its database");
    scene.logs.expect("service database cannot be drained");
    scene.logs.expect("holds cannot be watched");
    scene.logs.expect("has more than this release knows");

    scene.database.run("ALTER TABLE holdfast.event_outbox RENAME COLUMN ticket TO tickets").await;

    let line = scene.logs.wait_for(SHUT).await.text;
    assert!(line.contains("column holdfast.event_outbox.ticket is missing"), "{line}");
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_column_that_only_a_stamp_needs_is_missed_by_the_stamp_that_fails() {
    // (As above: no look would come for five minutes.)
    let scene = Scene::start().await;
    scene.logs.expect(SHUT);
    scene.logs.expect("outcomes cannot be written");
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;

    scene.database.run("ALTER TABLE holdfast.event_outbox DROP COLUMN last_error").await;
    let lost = scene.commit(&event("order.placed")).await;

    let line = scene.logs.wait_for(SHUT).await.text;
    assert!(line.contains("column holdfast.event_outbox.last_error is missing"), "{line}");
    assert!(!scene.logs.with("outcomes cannot be written").is_empty());
    scene.database.run("ALTER TABLE holdfast.event_outbox ADD COLUMN last_error text").await;
    scene.client.wait_for_state(&lost, EventState::Published).await;
    scene.end(2).await;
}

#[tokio::test]
async fn while_a_gate_is_shut_nothing_is_pruned_and_no_decision_about_holds_carried_out() {
    const LOOK: &str = "looked at what is held";
    const PUT_OFF: &str = "nothing is pruned";
    let scene = Scene::builder()
        .set("drain", "schema_check", "\"200ms\"")
        .set("drain", "held_watch", "\"100ms\"")
        .set("retention", "interval", "\"1s\"")
        .start()
        .await;
    scene.logs.expect(SHUT);
    scene.database.run("DROP INDEX holdfast.event_outbox_ended").await;
    scene.logs.wait_for(SHUT).await;
    // What was under way when it was shut is over by then.
    let more = async |what: &str| {
        let wanted = scene.logs.with(what).len() + 3;
        wait::until(what, LONG, || async {
            let seen = scene.logs.with(what).len();
            if seen >= wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    };
    more(LOOK).await;
    more(PUT_OFF).await;
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, published_at)
             SELECT 'order.old', '{}', now() - interval '31 days', now() - interval '31 days' FROM generate_series(1, 5);
             INSERT INTO holdfast.event_outbox (event_type, envelope, hold_operation_id, hold_generation)
             SELECT 'order.held', '{}', 'dropped', 1 FROM generate_series(1, 7);
             INSERT INTO holdfast.hold_outcome (operation_id, generation, outcome, decided_at)
             VALUES ('dropped', 1, 'dropped', now() - interval '1 minute')",
        )
        .await;

    more(LOOK).await;
    more(PUT_OFF).await;
    more(LOOK).await;

    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM holdfast.event_outbox").await, 12);
    scene
        .database
        .run("CREATE INDEX event_outbox_ended ON holdfast.event_outbox (ordering_key) WHERE is_head")
        .await;
    scene.logs.wait_for(HEALED).await;
    wait::until_equal("rows", LONG, 0_i64, || {
        scene.database.one("SELECT count(*) FROM holdfast.event_outbox")
    })
    .await;
    let census = scene.end(12).await;
    assert_eq!((census.gone["pruned"], census.gone["dropped"]), (5, 7));
}

#[tokio::test]
async fn a_database_that_was_never_migrated_is_named_and_served_once_it_is_migrated() {
    let mut stage = Scene::builder().set("drain", "schema_check", "\"200ms\"").stage().await;
    let empty = Database::fresh(PostgresAt::shared(), Kind::Empty).await;
    stage.config.service("billing", &empty.url());
    stage.logs.expect(SHUT);
    stage.logs.expect("resolver cannot reach its database");
    stage.logs.expect("service database cannot be drained");
    let scene = stage.start().await;
    let client = Client::new(scene.server.address(), "billing");

    scene.logs.wait_for(SHUT).await;
    let status = client.try_stage_now(&[event("bill.sent")]).await.unwrap_err();
    assert!(status.message().contains("run `holdfast migrate`"), "{status}");
    assert_eq!(refusal::<()>(Err(status)), (Code::FailedPrecondition, "SCHEMA_DRIFT".to_owned()));

    holdfast_server::db::migrate::service(&empty.url()).await.unwrap();

    Health::of(scene.server.address()).serves("service/billing").await;
    let bill = event("bill.sent");
    client.stage_now(std::slice::from_ref(&bill)).await;
    client.wait_for_state(&bill.id, EventState::Published).await;
    scene.end(0).await;
}

#[tokio::test]
async fn drift_in_the_control_database_is_its_own_components_and_staging_goes_on() {
    let scene = Scene::builder().set("drain", "schema_check", "\"200ms\"").start().await;
    let health = Health::of(scene.server.address());
    health.serves("control").await;
    scene.logs.expect(SHUT);

    scene.control.run("ALTER TABLE holdfast.admin_audit DISABLE TRIGGER admin_audit_append_only").await;

    scene.logs.wait_for(SHUT).await;
    health.does_not_serve("control").await;
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.control.run("ALTER TABLE holdfast.admin_audit ENABLE TRIGGER admin_audit_append_only").await;
    health.serves("control").await;
    scene.end(1).await;
}
