//! Decisions about holds are remembered as long as published events are, and while their pairs have rows.

use holdfast_tests::{
    client::event,
    database::Database,
    holds::{Holds, pair, try_stage},
    logs::Logs,
    scene::Scene,
    wait::{self, LONG},
};
use sqlx::Connection as _;

use super::{KEPT, MOST, replica, rows};

async fn decided(database: &Database, operation: &str, age: &str) {
    database
        .run(&format!(
            "INSERT INTO holdfast.hold_outcome VALUES ('{operation}', 1, 'released', now() - interval '{age}')"
        ))
        .await;
}

async fn held(database: &Database, operation: &str, more: (&str, &str)) {
    let (columns, values) = more;
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, hold_operation_id, hold_generation{columns})
             VALUES ('t', '{{}}', '{operation}', 1{values})"
        ))
        .await;
}

#[tokio::test]
async fn a_decision_goes_with_the_outbox_unless_its_pair_still_has_a_row() {
    Logs::capture();
    let database = Database::service().await;
    decided(&database, "old", "31 days").await;
    decided(&database, "young", "29 days").await;
    decided(&database, "old, left behind", "31 days").await;
    held(&database, "old, left behind", ("", "")).await;
    decided(&database, "old, still open", "31 days").await;
    held(&database, "old, still open", (", ticket, resolved_at", ", 4711, NULL")).await;
    // Another generation's row is no row of the pair.
    database
        .run("INSERT INTO holdfast.hold_outcome VALUES ('old, left behind', 2, 'dropped', '-infinity')")
        .await;

    let (retention, _) = replica(&database, KEPT, MOST);
    assert_eq!(rows(&retention.run_once().await.unwrap()), (0, 2));

    let mut connection = database.connect().await;
    let left: Vec<String> =
        sqlx::query_scalar("SELECT operation_id FROM holdfast.hold_outcome WHERE generation = 1 ORDER BY 1")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    connection.close().await.unwrap();
    assert_eq!(left, ["old, left behind", "old, still open", "young"]);
}

#[tokio::test]
async fn a_stage_that_comes_after_its_decision_was_forgotten_is_held_anew() {
    let scene = Scene::builder().set("retention", "interval", "\"1s\"").start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    holds.release(&op).await;
    let stage = async |kind: &str| {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        try_stage(&scene.client, ticket, &op, &[event(kind)]).await.unwrap();
        caller.commit().await;
        caller.close().await;
    };
    stage("order.remembered").await;

    scene.database.run("UPDATE holdfast.hold_outcome SET decided_at = decided_at - interval '31 days'").await;
    wait::until_equal("decisions", LONG, 0, || super::count(&scene.database, "hold_outcome")).await;
    stage("order.forgotten").await;

    wait::until_equal("held pairs", LONG, 1, || async { holds.list("", 0).await.len() }).await;
    assert_eq!(holds.drop_held(&op).await, (1, false), "it can be decided again");
    let census = scene.end(2).await;
    assert_eq!((census.published, census.gone["dropped"]), (1, 1));
}
