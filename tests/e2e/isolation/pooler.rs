//! A pooler that lends connections by the transaction (pgbouncer) before one service's database: nothing of ours may live in
//! a session (pitfalls, "named prepared statements").

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    caller::Caller,
    client::{event, keyed},
    pgbouncer::PgBouncer,
    scene::{SERVICE, Scene, Stage},
    services::PostgresAt,
    wait::{self, LONG},
};
use sqlx::{Connection as _, PgConnection, Row as _};

const SECTION: &str = "services.orders";
/// Fewer than the server's own pool has, so that its connections wander.
const POOL_SIZE: u32 = 3;

/// The server goes through the pooler.
async fn pooled(stage: &mut Stage) -> PgBouncer {
    let pooler = PgBouncer::before(PostgresAt::shared(), POOL_SIZE).await;
    stage.config.service(SERVICE, &pooler.url(&stage.database));
    stage.config.set(SECTION, "max_connections", "8").set(SECTION, "prepared_statements", "false");
    pooler
}

#[tokio::test]
async fn through_a_transaction_mode_pooler_concurrent_callers_stage_commit_and_roll_back() {
    let mut stage = Scene::builder().stage().await;
    let pooler = pooled(&mut stage).await;
    let scene = stage.start().await;

    // The callers too: a ticket's lock is its transaction's, not its session's. The pooler ties a connection to each open
    // transaction, so at most two at a time, or the server would have none.
    let mut kept = Vec::new();
    for _ in 0..15 {
        let (commits, rolls_back) = (keyed("order.placed", "k"), keyed("order.placed", "k"));
        let call = |one, how| {
            let (scene, pooler) = (&scene, &pooler);
            async move {
                let mut caller = Caller::connect_plainly(&pooler.url(&scene.database)).await;
                let ticket = caller_ticket(&mut caller).await;
                scene.client.stage(ticket, std::slice::from_ref(one)).await;
                caller.sql(how).await;
                scene.client.confirm(ticket).await;
                caller.close().await;
            }
        };
        tokio::join!(call(&commits, "COMMIT"), call(&rolls_back, "ROLLBACK"));
        kept.push(commits.id);
    }

    scene.consumer.wait_for_ids(&kept, LONG).await;
    for id in &kept {
        // A read outside of a transaction of ours.
        scene.client.wait_for_state(id, EventState::Published).await;
    }
    let census = scene.end(30).await;
    assert_eq!((census.published, census.rows), (15, 15), "{census:?}");
}

/// By the simple protocol: a caller behind a pooler prepares nothing either.
async fn caller_ticket(caller: &mut Caller) -> i64 {
    caller.begin().await;
    let row = sqlx::raw_sql("SELECT holdfast.stage_ticket()").fetch_one(caller.connection()).await.unwrap();
    row.try_get_unchecked(0).unwrap()
}

#[tokio::test]
async fn through_a_transaction_mode_pooler_many_callers_at_once_are_served() {
    let mut stage = Scene::builder().stage().await;
    let _pooler = pooled(&mut stage).await;
    let scene = stage.start().await;
    let events: Vec<_> = (0..80).map(|_| event("order.placed")).collect();

    let calls = events.iter().map(|one| async {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        scene.client.stage(ticket, std::slice::from_ref(one)).await;
        // Again: alone this time.
        scene.client.try_stage(ticket, std::slice::from_ref(one)).await.unwrap();
        scene.client.get(&one.id).await.unwrap();
        caller.commit().await;
        caller.close().await;
    });
    futures::future::join_all(calls).await;

    scene.consumer.wait_for_ids(&holdfast_tests::client::ids(&events), LONG).await;
    scene.end(80).await;
}

#[tokio::test]
async fn nothing_of_the_server_stays_in_the_sessions_of_a_pooler() {
    let mut stage = Scene::builder().stage().await;
    let pooler = pooled(&mut stage).await;
    let scene = stage.start().await;
    for _ in 0..10 {
        let id = scene.commit(&keyed("order.placed", "k")).await;
        scene.client.wait_for_state(&id, EventState::Published).await;
    }

    // Through the pooler, so in the very sessions that the server used.
    let mut look = PgConnection::connect(&pooler.url(&scene.database)).await.unwrap();
    let left = sqlx::raw_sql(
        "SELECT name FROM pg_prepared_statements UNION ALL
         SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN
             ('client_encoding', 'DateStyle', 'TimeZone', 'application_name', 'standard_conforming_strings')",
    )
    .fetch_all(&mut look)
    .await
    .unwrap();
    look.close().await.unwrap();
    assert!(left.is_empty(), "{} left behind", left.len());
    scene.end(10).await;
}

#[tokio::test]
async fn a_pooler_that_is_killed_loses_nothing() {
    let mut stage = Scene::builder().stage().await;
    let mut pooler = pooled(&mut stage).await;
    let scene = stage.start().await;
    for part in [
        "resolver cannot reach its database",
        "service database cannot be drained",
        "outcomes cannot be written",
    ] {
        scene.logs.expect(part);
    }
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let (before, after) = (event("order.placed"), event("order.placed"));
    scene.client.stage(ticket, std::slice::from_ref(&before)).await;

    pooler.kill9_and_restart().await;

    wait::until("the second event to be staged", LONG, || async {
        scene
            .client
            .try_stage(ticket, std::slice::from_ref(&after))
            .await
            .map_err(|status| status.to_string())
    })
    .await;
    caller.commit().await;
    scene.consumer.wait_for_ids(&[before.id, after.id], LONG).await;
    scene.end(2).await;
}
