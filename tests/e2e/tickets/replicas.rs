//! Two replicas resolve the same tickets: verdicts are facts, a discard is counted once (design, sections 3 and 15.2).

use std::time::Duration;

use holdfast_server::{db::Conn, outbox};
use holdfast_tests::{client::event, database::Database, scene::Scene, server::ServerInProcess, wait::LONG};
use uuid::Uuid;

use super::{end, like_the_server, query};
use crate::staging::gone;

#[tokio::test]
async fn two_replicas_agree_and_count_each_discard_once() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let mut callers = [scene.caller().await, scene.caller().await, scene.caller().await];
    let (mut wanted, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        for (n, caller) in callers.iter_mut().enumerate() {
            let ticket = caller.begin_with_ticket().await;
            let event = event("order.placed");
            scene.client.stage(ticket, std::slice::from_ref(&event)).await;
            if n == 0 {
                caller.rollback().await;
                lost.push(event.id);
            } else {
                caller.commit().await;
                wanted.push(event.id);
            }
        }
    }

    scene.consumer.wait_for_ids(&wanted, LONG).await;
    for id in &lost {
        gone(&scene.client, id).await;
    }
    let discarded = |server: &ServerInProcess| {
        server.metric("holdfast_discarded_total", "service=\"orders\"").round() as i64
    };
    let counted = discarded(&scene.server) + discarded(&second);
    second.stop().await;
    let census = scene.end(90).await;
    assert_eq!((census.published, census.gone["rolled_back"], counted), (60, 30, 30));
}

/// A row of a rolled-back ticket; nobody but the test resolves in this database.
async fn undecided(database: &Database, ticket: i64) -> Uuid {
    let id = Uuid::now_v7();
    let mut connection = Conn::from(database.connect().await);
    insert(&mut connection, id, ticket).await;
    id
}

/// The verdict "rolled back", as the resolver and the pass write it: rows that somebody is busy with are left.
async fn discard(connection: &mut Conn, ticket: i64) -> i64 {
    sqlx::query_scalar(query(outbox::QUERIES, "discard_rolled_back"))
        .bind([ticket])
        .bind(1_000_i64)
        .bind(0_i32)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// The first half of staging an id again whose first attempt rolled back: waits for who is busy with its row.
async fn replace(connection: &mut Conn, id: Uuid, ticket: i64) -> i64 {
    sqlx::query_scalar(query(outbox::QUERIES, "replace_rolled_back"))
        .bind([id])
        .bind([ticket])
        .bind(1_i32)
        .fetch_one(connection)
        .await
        .unwrap()
}

async fn insert(connection: &mut Conn, id: Uuid, ticket: i64) {
    sqlx::query(
        "INSERT INTO holdfast.event_outbox (id, event_type, envelope, ticket, resolved_at)
         VALUES ($1, 'order.placed', '{}', $2, NULL)",
    )
    .bind(id)
    .bind(ticket)
    .execute(connection)
    .await
    .unwrap();
}

async fn tallied(database: &Database) -> i64 {
    database.one("SELECT sum(rows)::bigint FROM holdfast.outbox_tally").await
}

#[tokio::test]
async fn of_two_open_discards_of_one_row_the_second_counts_nothing() {
    let database = Database::service().await;
    undecided(&database, 7).await;
    let (mut one, mut two) = (like_the_server(&database).await, like_the_server(&database).await);

    assert_eq!(discard(&mut one, 7).await, 1);
    assert_eq!(discard(&mut two, 7).await, 0);

    end(two, "COMMIT").await;
    end(one, "COMMIT").await;
    assert_eq!(tallied(&database).await, 1);
}

#[tokio::test]
async fn a_restage_that_waited_for_a_discard_counts_nothing_and_stages() {
    // One order: the resolver's deletion is open when the new stage wants to replace the row.
    let database = Database::service().await;
    let id = undecided(&database, 7).await;
    let (mut resolver, mut stage) = (like_the_server(&database).await, like_the_server(&database).await);
    assert_eq!(discard(&mut resolver, 7).await, 1);

    let replacing = tokio::spawn(async move {
        let gone = replace(&mut stage, id, 7).await;
        insert(&mut stage, id, 8).await;
        end(stage, "COMMIT").await;
        gone
    });
    somebody_waits_for_a_row(&database).await;
    end(resolver, "COMMIT").await;

    assert_eq!(replacing.await.unwrap(), 0);
    assert_eq!(tallied(&database).await, 1);
    assert_eq!(database.one::<i64>("SELECT ticket FROM holdfast.event_outbox").await, 8);
}

#[tokio::test]
async fn a_restaged_event_is_not_deleted_by_a_verdict_on_its_first_attempt() {
    // The other order: the new stage is open when the resolver, which looked earlier, comes with its verdict; and again
    // when it has committed.
    let database = Database::service().await;
    let id = undecided(&database, 7).await;
    let (mut stage, mut resolver) = (like_the_server(&database).await, like_the_server(&database).await);
    let verdicts = holdfast_server::tickets::ask(&mut resolver, &[7]).await.unwrap();
    assert_eq!(verdicts.rolled_back, [7]);
    assert_eq!(replace(&mut stage, id, 7).await, 1);
    insert(&mut stage, id, 8).await;

    let while_open = discard(&mut resolver, 7).await;
    end(stage, "COMMIT").await;
    let when_committed = discard(&mut resolver, 7).await;
    end(resolver, "COMMIT").await;

    assert_eq!((while_open, when_committed), (0, 0));
    assert_eq!(database.one::<i64>("SELECT ticket FROM holdfast.event_outbox").await, 8);
    assert_eq!(tallied(&database).await, 1);
}

async fn somebody_waits_for_a_row(database: &Database) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
               AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple')";
    holdfast_tests::wait::until_equal(
        "a session that waits for a row",
        Duration::from_secs(10),
        1,
        || async { database.one::<i64>(sql).await },
    )
    .await;
}
