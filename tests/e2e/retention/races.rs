//! Prune against whoever makes a published row pending again, in both orders, and against a busy drain.

use holdfast_server::outbox;
use holdfast_tests::{
    database::Database,
    logs::Logs,
    reconcile::reconcile,
    scene::Scene,
    wait::{self, LONG},
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::{KEPT, MOST, count, put_published, replica, rows};
use crate::drain::hold_drain_lock;

/// What a replay does to a row (design, section 8).
const REPLAY: &str = "UPDATE holdfast.event_outbox
    SET published_at = NULL, attempts = 0, last_error = NULL, admitted_at = NULL, replay_id = gen_random_uuid(),
        claim_generation = claim_generation + 1
    WHERE published_at IS NOT NULL AND event_type = 'order.wanted'";

async fn wanted(database: &Database) {
    put_published(database, 20, "40 days").await;
    database
        .run(
            "UPDATE holdfast.event_outbox SET event_type = 'order.wanted'
             WHERE id = (SELECT id FROM holdfast.event_outbox ORDER BY seq LIMIT 1)",
        )
        .await;
}

async fn pending(database: &Database) -> i64 {
    database.one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NULL").await
}

async fn prune(connection: &mut PgConnection) -> i64 {
    let sql = outbox::QUERIES.iter().find(|(name, _)| *name == "prune").unwrap().1;
    sqlx::query_scalar(sql)
        .bind(KEPT.outbox.as_secs_f64())
        .bind(1_000_i64)
        .bind(0)
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_row_that_an_open_replay_has_made_pending_is_neither_waited_for_nor_pruned() {
    Logs::capture();
    let database = Database::service().await;
    wanted(&database).await;
    let mut replay = database.connect().await;
    replay.execute("BEGIN").await.unwrap();
    assert_eq!(replay.execute(REPLAY).await.unwrap().rows_affected(), 1);

    let (retention, _) = replica(&database, KEPT, MOST);
    assert_eq!(rows(&retention.run_once().await.unwrap()), (19, 0));

    replay.execute("COMMIT").await.unwrap();
    replay.close().await.unwrap();
    assert_eq!(pending(&database).await, 1);
    assert_eq!(reconcile(&database, 20).await.gone["pruned"], 19);
}

#[tokio::test]
async fn a_replay_that_comes_while_a_prune_is_open_waits_and_finds_what_the_prune_has_left() {
    Logs::capture();
    for (how, finds, gone) in [("COMMIT", 0, 20), ("ROLLBACK", 1, 0)] {
        let database = Database::service().await;
        wanted(&database).await;
        let (mut pruning, mut replay) = (database.connect().await, database.connect().await);
        pruning.execute("BEGIN").await.unwrap();
        assert_eq!(prune(&mut pruning).await, 20);

        let replayed = tokio::spawn(async move {
            let done = replay.execute(REPLAY).await.unwrap().rows_affected();
            replay.close().await.unwrap();
            done
        });
        wait::until_equal("a session that waits for a lock", LONG, true, || async {
            database
                .one::<bool>(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                         AND wait_event_type = 'Lock')",
                )
                .await
        })
        .await;
        pruning.execute(how).await.unwrap();
        pruning.close().await.unwrap();

        assert_eq!(replayed.await.unwrap(), finds, "{how}");
        assert_eq!(pending(&database).await, i64::try_from(finds).unwrap(), "{how}");
        assert_eq!(reconcile(&database, 20).await.gone.get("pruned").copied().unwrap_or(0), gone, "{how}");
    }
}

#[tokio::test]
async fn of_rows_that_are_replayed_while_they_are_pruned_each_is_one_or_the_other() {
    Logs::capture();
    let database = Database::service().await;
    put_published(&database, 4_000, "40 days").await;
    let replay = async {
        let mut connection = database.connect().await;
        let mut replayed: Vec<Uuid> = Vec::new();
        for n in 0..400 {
            let ids = sqlx::query_scalar(
                "UPDATE holdfast.event_outbox SET published_at = NULL, admitted_at = NULL WHERE id IN (
                     SELECT id FROM holdfast.event_outbox WHERE published_at IS NOT NULL AND seq % 400 = $1 LIMIT 5)
                 AND published_at IS NOT NULL RETURNING id",
            )
            .bind(n)
            .fetch_all(&mut connection)
            .await
            .unwrap();
            replayed.extend::<Vec<Uuid>>(ids);
        }
        connection.close().await.unwrap();
        replayed
    };
    let pruning = async {
        let mut connection = database.connect().await;
        let sql = outbox::QUERIES.iter().find(|(name, _)| *name == "prune").unwrap().1;
        let mut gone = 0_i64;
        for _ in 0..400 {
            gone += sqlx::query_scalar::<_, i64>(sql)
                .bind(KEPT.outbox.as_secs_f64())
                .bind(5_i64)
                .bind(0)
                .fetch_one(&mut connection)
                .await
                .unwrap();
        }
        connection.close().await.unwrap();
        gone
    };

    let (replayed, gone) = tokio::join!(replay, pruning);

    assert!(!replayed.is_empty());
    assert_eq!(pending(&database).await, i64::try_from(replayed.len()).unwrap(), "none of them was pruned");
    assert_eq!(reconcile(&database, 4_000).await.gone["pruned"], gone);
}

#[tokio::test]
async fn everything_is_delivered_while_a_busy_drain_and_prune_follow_each_other() {
    let scene = Scene::builder().set("retention", "interval", "\"50ms\"").start().await;
    let (mut old, mut young) = (Vec::new(), Vec::new());
    let mut writer = scene.database.connect().await;
    for n in 0..30 {
        // Staged long ago, and delivered only now: they may go as soon as they are published.
        for (ids, age) in [(&mut old, 40), (&mut young, 4)] {
            let put: Vec<Uuid> = sqlx::query_scalar(
                "INSERT INTO holdfast.event_outbox (id, event_type, envelope, ordering_key, created_at)
                 SELECT id, 'order.late', jsonb_build_object('id', id::text), 'k-' || n % 40, now() - $2 * interval '1 day'
                 FROM (SELECT holdfast.uuid_v7() AS id, n FROM generate_series(1, 100) AS n) AS made
                 WHERE $1 >= 0 ORDER BY n RETURNING id",
            )
            .bind(n)
            .bind(age)
            .fetch_all(&mut writer)
            .await
            .unwrap();
            ids.extend(put.iter().map(Uuid::to_string));
        }
    }
    writer.close().await.unwrap();

    scene.consumer.wait_for_ids(&[old.clone(), young].concat(), LONG * 2).await;
    wait::until_equal("rows", LONG, 3_000, || count(&scene.database, "event_outbox")).await;

    assert_eq!(scene.server.metric("holdfast_missed_promotions_total", ""), 0.0);
    assert_eq!(scene.server.metric("holdfast_retention_pruned_total", "table=\"event_outbox\""), 3_000.0);
    let census = scene.end(6_000).await;
    assert_eq!((census.published, census.gone["pruned"]), (3_000, 3_000));
}

#[tokio::test]
async fn a_published_front_stays_until_its_followers_were_looked_at() {
    let scene = Scene::builder().set("retention", "interval", "\"50ms\"").start().await;
    let drain = hold_drain_lock(&scene.database).await;
    // As a stamp leaves it that did not get the drain's lock, with a follower that was set aside; and one that may go.
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key, created_at, published_at, is_head, admitted_at)
                 VALUES ('order.placed', '{}', 'k', '-infinity', now(), true, NULL),
                        ('order.paid', '{}', 'k', now(), NULL, false, now()),
                        ('order.placed', '{}', 'l', '-infinity', now(), false, NULL)",
        )
        .await;
    wait::until_equal("rows", LONG, 2, || count(&scene.database, "event_outbox")).await;
    drain.close().await.unwrap();

    scene.consumer.wait_for(1, LONG).await;

    wait::until_equal("rows", LONG, 1, || count(&scene.database, "event_outbox")).await;
    assert_eq!(scene.server.metric("holdfast_missed_promotions_total", ""), 0.0);
    assert_eq!(scene.end(3).await.gone["pruned"], 2);
}
