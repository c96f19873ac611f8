//! Decisions about many rows: killed in the middle, in the way of strangers' locks, taken by two replicas at once.

use std::time::Duration;

use holdfast_tests::{
    holds::{Holds, pair},
    reconcile::reconcile,
    scene::{Builder, Scene},
    server::{ServerInProcess, ServerProcess},
    wait::{self, LONG},
};
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::{held, put_held};
use crate::staging::gate::Gate;

/// Claims of a killed server heal soon. (The gate is a trigger that is not the release's: it would shut the next server's.)
fn short_lease() -> Builder {
    let broker =
        Scene::builder().set("drain", "schema_check", "\"0s\"").set("broker", "confirm_timeout", "\"2s\"");
    broker.set("drain", "lease", "\"4s\"")
}

/// A server that was killed in its third slice of 5,000 rows.
async fn killed_in_the_middle(scene: &mut Scene<ServerProcess>) {
    put_held(&scene.database, "op", 1, 5_000, None).await;
    scene
        .database
        .run("UPDATE holdfast.event_outbox SET event_type = 'order.gate' WHERE envelope ->> 'n' = '2500'")
        .await;
    let gate = Gate::before_the_release_of(&scene.database, "order.gate").await;
    gate.close().await;
    let (holds, op) = (Holds::of(scene), pair("op", 1));
    let call = tokio::spawn(async move { holds.try_release(&op).await });
    gate.somebody_waits().await;
    assert_eq!(held(&scene.database).await, 3_000, "two slices are committed");

    scene.server.kill9().await;
    scene.database.run("UPDATE public.gate SET closed = false").await;

    assert!(call.await.unwrap().is_err());
    // Its last statement ends, and its transaction with it.
    wait::until_equal("sessions of the killed server", LONG, 0, || async {
        scene
            .database
            .one::<i64>(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'",
            )
            .await
    })
    .await;
    assert_eq!(held(&scene.database).await, 3_000, "the third is not");
}

async fn all_are_published(scene: Scene<ServerProcess>) {
    wait::until_equal("rows published", LONG * 2, 5_000, || async {
        reconcile(&scene.database, 5_000).await.published
    })
    .await;
    scene.end(5_000).await;
}

#[tokio::test]
async fn heavy_a_release_that_was_killed_in_the_middle_is_finished_by_whoever_calls_again() {
    let mut scene = short_lease().start_process().await;
    killed_in_the_middle(&mut scene).await;
    let server = ServerProcess::start(&scene.config).await;
    scene.replace_server(server);

    let answer = Holds::of(&scene).release(&pair("op", 1)).await;

    assert_eq!(answer, (3_000, true));
    all_are_published(scene).await;
}

#[tokio::test]
async fn heavy_a_release_that_was_killed_in_the_middle_is_finished_by_the_watch_of_another_replica() {
    let mut scene = short_lease().start_process().await;
    killed_in_the_middle(&mut scene).await;
    let mut config = scene.config.clone();
    config.set("drain", "held_watch", "\"200ms\"");
    let server = ServerProcess::start(&config).await;
    scene.replace_server(server);

    wait::until_equal("rows held", LONG, 0, || held(&scene.database)).await;

    all_are_published(scene).await;
}

/// Locks the row of that number.
async fn lock_row(scene: &Scene, n: i64) -> PgConnection {
    let mut stranger = scene.database.connect().await;
    stranger.execute("BEGIN").await.unwrap();
    sqlx::query("SELECT FROM holdfast.event_outbox WHERE envelope ->> 'n' = $1 FOR UPDATE")
        .bind(n.to_string())
        .execute(&mut stranger)
        .await
        .unwrap();
    stranger
}

#[tokio::test]
async fn a_row_that_a_stranger_has_locked_delays_its_slice_and_the_answer_says_so() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    put_held(&scene.database, "op", 1, 1_500, None).await;
    let stranger = lock_row(&scene, 1_200).await;

    let answer = holds.try_release(&op).await.unwrap();

    assert_eq!((answer.released, answer.decided_before, answer.complete), (1_000, false, false));
    stranger.close().await.unwrap();
    assert_eq!(holds.release(&op).await, (500, true));

    // In the first slice: it is decided all the same.
    put_held(&scene.database, "op", 2, 10, None).await;
    let stranger = lock_row(&scene, 3).await;
    let answer = holds.try_drop(&pair("op", 2)).await.unwrap();
    assert_eq!((answer.dropped, answer.decided_before, answer.complete), (0, false, false));
    stranger.close().await.unwrap();
    assert_eq!(holds.drop_held(&pair("op", 2)).await, (10, true));
    let census = scene.end(1_510).await;
    assert_eq!((census.published, census.gone["dropped"]), (1_500, 10));
}

#[tokio::test]
async fn two_replicas_that_decide_the_same_pair_at_once_do_each_row_once() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let (one, two) = (Holds::of(&scene), Holds::at(second.address()));
    put_held(&scene.database, "kept", 1, 3_500, None).await;
    put_held(&scene.database, "dropped", 1, 3_500, None).await;
    let (kept, dropped) = (pair("kept", 1), pair("dropped", 1));

    let (a, b, c, d) = tokio::join!(
        one.try_release(&kept),
        two.try_release(&kept),
        one.try_drop(&dropped),
        two.try_drop(&dropped)
    );

    let (a, b, c, d) = (a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap());
    assert_eq!((a.released + b.released, c.dropped + d.dropped), (3_500, 3_500));
    assert!(a.decided_before != b.decided_before && c.decided_before != d.decided_before);
    assert!(a.complete && b.complete && c.complete && d.complete, "{a:?} {b:?} {c:?} {d:?}");
    assert_eq!(held(&scene.database).await, 0);
    wait::until_equal("rows published", Duration::from_secs(60), 3_500, || async {
        reconcile(&scene.database, 7_000).await.published
    })
    .await;
    second.stop().await;
    assert_eq!(scene.end(7_000).await.gone["dropped"], 3_500);
}
