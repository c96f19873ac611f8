//! The watch: what is held for long is told, once, and never reaped; what was left half done is carried out.

use std::time::Duration;

use holdfast_tests::{
    database::Database,
    holds::{Holds, pair},
    logs::Logs,
    reconcile::reconcile,
    scene::{Builder, Scene},
    server::ServerInProcess,
    wait::{self, LONG},
};

use sqlx::Connection as _;

use super::put_held;

const WARNING: &str = "events are held for long";
const LOOK: &str = "looked at what is held";

/// Looks ten times a second.
fn watchful() -> Builder {
    Scene::builder().set("drain", "held_watch", "\"100ms\"")
}

fn gauge(server: &ServerInProcess, name: &str) -> f64 {
    server.metric(name, "service=\"orders\"")
}

async fn looks(logs: &Logs, more: usize) {
    let wanted = logs.with(LOOK).len() + more;
    wait::until(&format!("{wanted} looks"), LONG, || async {
        let seen = logs.with(LOOK).len();
        if seen >= wanted { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn grow_old(scene: &Scene, hours: u32) {
    scene
        .database
        .run(&format!("UPDATE holdfast.event_outbox SET created_at = created_at - interval '{hours} hours'"))
        .await;
}

#[tokio::test]
async fn abandoned_holds_are_seen_by_every_replica_warned_of_once_and_never_reaped() {
    let scene = watchful().start().await;
    let second = ServerInProcess::start(&scene.config).await;
    scene.logs.expect(WARNING);
    for n in 0..36 {
        put_held(&scene.database, &format!("op-{n:02}"), 1, 1, None).await;
    }
    looks(&scene.logs, 4).await;
    assert_eq!(scene.logs.with(WARNING).len(), 0, "they are young");
    // The later ones are older: the oldest operation is the last.
    scene
        .database
        .run("UPDATE holdfast.event_outbox SET created_at = created_at - interval '2 hours' - (seq || ' minutes')::interval")
        .await;

    let warning = scene.logs.wait_for(WARNING).await.to_string();
    looks(&scene.logs, 20).await;

    for part in ["rows=36", "operation.id=op-35 ", "generation=1"] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    assert_eq!(scene.logs.with(WARNING).len(), 1, "two replicas, many looks, one warning");
    for server in [&scene.server, &second] {
        assert_eq!(gauge(server, "holdfast_outbox_held_rows"), 36.0);
        let age = gauge(server, "holdfast_outbox_held_oldest_age_seconds");
        assert!((9_360.0..9_500.0).contains(&age), "{age}");
    }
    assert_eq!(reconcile(&scene.database, 36).await.held, 36, "none was reaped");

    // Its operation is decided: the next oldest is another one.
    Holds::of(&scene).drop_held(&pair("op-35", 1)).await;
    wait::until_equal("warnings", LONG, 2, || async { scene.logs.with(WARNING).len() }).await;
    looks(&scene.logs, 10).await;
    let warnings = scene.logs.with(WARNING);
    assert_eq!(warnings.len(), 2);
    assert!(warnings[1].to_string().contains("op-34"), "{}", warnings[1]);
    // An hour later it is said again.
    scene.database.run("UPDATE holdfast.hold_watch SET warned_at = warned_at - interval '61 minutes'").await;
    wait::until_equal("warnings", LONG, 3, || async { scene.logs.with(WARNING).len() }).await;
    second.stop().await;
    let census = scene.end(36).await;
    assert_eq!((census.held, census.gone["dropped"]), (35, 1));
}

#[tokio::test]
async fn a_look_that_began_before_another_one_s_warning_does_not_warn_once_more_after_it() {
    Logs::capture();
    let database = Database::service().await;
    let warned =
        holdfast_server::outbox::holds::QUERIES.iter().find(|(name, _)| *name == "warned").unwrap().1;
    let (mut first, mut second) = (database.connect().await, database.connect().await);
    // Its now() is before the other one's.
    let mut began = first.begin().await.unwrap();
    sqlx::query("SELECT now()").execute(&mut *began).await.unwrap();
    let warn = || sqlx::query(warned).bind("op").bind(1_i64).bind(3_600.0_f64);
    assert!(warn().fetch_optional(&mut second).await.unwrap().is_some());

    let again = warn().fetch_optional(&mut *began).await.unwrap();

    assert!(again.is_none(), "it was said a moment ago");
}

#[tokio::test]
async fn a_restart_does_not_warn_again_and_an_age_of_zero_never_does() {
    let mut scene = watchful().start().await;
    scene.logs.expect(WARNING);
    put_held(&scene.database, "op", 1, 1, None).await;
    grow_old(&scene, 3).await;
    scene.logs.wait_for(WARNING).await;

    let again = ServerInProcess::start(&scene.config).await;
    scene.replace_server(again).stop().await;
    looks(&scene.logs, 10).await;
    assert_eq!(scene.logs.with(WARNING).len(), 1);

    let mut config = scene.config.clone();
    config.set("drain", "held_age_warn", "\"0s\"");
    scene.database.run("DELETE FROM holdfast.hold_watch").await;
    let silent = ServerInProcess::start(&config).await;
    scene.replace_server(silent).stop().await;
    // The one that was stopped may have warned on its way out.
    let before = scene.logs.with(WARNING).len();
    scene.database.run("DELETE FROM holdfast.hold_watch").await;
    looks(&scene.logs, 10).await;
    assert_eq!(scene.logs.with(WARNING).len(), before);
    assert_eq!(scene.end(1).await.held, 1);
}

#[tokio::test]
async fn rows_of_decided_pairs_that_are_held_all_the_same_are_released_or_dropped_and_counted() {
    let scene = watchful().start().await;
    put_held(&scene.database, "released", 1, 1_500, None).await;
    put_held(&scene.database, "dropped", 1, 1_200, None).await;
    put_held(&scene.database, "undecided", 1, 3, None).await;

    // As a decision leaves it that was killed after its first transaction.
    scene
        .database
        .run(
            "INSERT INTO holdfast.hold_outcome (operation_id, generation, outcome, decided_at) VALUES
                 ('released', 1, 'released', now() - interval '1 minute'),
                 ('dropped', 1, 'dropped', now() - interval '1 minute')",
        )
        .await;

    wait::until_equal("rows held", LONG, 3, || super::held(&scene.database)).await;
    wait::until_equal("the gauge", LONG, 3.0, || async { gauge(&scene.server, "holdfast_outbox_held_rows") })
        .await;
    let left = |outcome: &str| {
        scene.server.metric("holdfast_hold_rows_left_behind_total", &format!("outcome=\"{outcome}\""))
    };
    assert_eq!((left("released"), left("dropped")), (1_500.0, 1_200.0));
    let census = scene.end(2_703).await;
    assert_eq!((census.published, census.held, census.gone["dropped"]), (1_500, 3, 1_200));
}

#[tokio::test]
async fn times_that_no_clock_has_do_not_stop_the_watch() {
    let scene = watchful().set("drain", "held_age_warn", "\"0s\"").start().await;
    put_held(&scene.database, "op", 1, 2, None).await;
    scene
        .database
        .run(
            "UPDATE holdfast.event_outbox SET created_at = CASE WHEN seq % 2 = 0 THEN 'infinity' ELSE '-infinity' END::timestamptz",
        )
        .await;

    wait::until("the oldest to be as old as the epoch", LONG, || async {
        let age = gauge(&scene.server, "holdfast_outbox_held_oldest_age_seconds");
        if age > Duration::from_secs(50 * 365 * 86_400).as_secs_f64() { Ok(()) } else { Err(age) }
    })
    .await;
    assert_eq!(gauge(&scene.server, "holdfast_outbox_held_rows"), 2.0);
    let listed = Holds::of(&scene).list("", 0).await;
    assert_eq!((listed.len(), listed[0].held, listed[0].oldest_created_at), (1, 2, None));
    scene.end(2).await;
}
