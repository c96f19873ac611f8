//! `kill -9` in the middle of a cycle: nothing is lost, whoever looks next goes on, and it stays one cycle.

use holdfast_tests::{
    database::Database,
    reconcile::reconcile,
    scene::Scene,
    server::ServerProcess,
    wait::{self, LONG},
};

use super::{count, outlive_the_lease, put_published};
use crate::staging::gate::Gate;

/// Before rows of the outbox are deleted.
pub(super) async fn gate(database: &Database) -> Gate<'_> {
    Gate::make(
        database,
        "CREATE TRIGGER gate BEFORE DELETE ON holdfast.event_outbox FOR EACH STATEMENT
             EXECUTE FUNCTION public.gate()",
    )
    .await
}

pub(super) async fn wait_for_generation(database: &Database, wanted: i64) {
    wait::until_equal("generation", LONG, wanted, || {
        database.one::<i64>("SELECT coalesce(max(generation), 0) FROM holdfast.retention_cycle")
    })
    .await;
}

async fn pruned(database: &Database) -> i64 {
    database
        .one("SELECT coalesce(sum(rows), 0)::bigint FROM holdfast.outbox_tally WHERE reason = 'pruned'")
        .await
}

#[tokio::test]
async fn heavy_a_cycle_whose_replica_was_killed_in_a_batch_is_gone_on_with_within_its_cap() {
    // The gate would not serve a database with a stranger's trigger.
    let stage = Scene::builder()
        .set("retention", "most", "4000")
        .set("drain", "schema_check", "\"0s\"")
        .stage()
        .await;
    put_published(&stage.database, 9_000, "31 days").await;
    // The third batch of the cycle stands before its delete.
    stage
        .database
        .run(
            "CREATE FUNCTION public.third() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF (SELECT pruned FROM holdfast.retention_cycle) = 2000 THEN
                     PERFORM pg_advisory_xact_lock(7, 7);
                 END IF;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER third BEFORE DELETE ON holdfast.event_outbox FOR EACH STATEMENT EXECUTE FUNCTION public.third()",
        )
        .await;
    let mut holder = stage.database.connect().await;
    sqlx::query("SELECT pg_advisory_lock(7, 7)").execute(&mut holder).await.unwrap();
    let mut server = ServerProcess::start(&stage.config).await;
    wait::until_equal("a batch before its delete", LONG, true, || {
        stage.database.one::<bool>(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 7 AND objid = 7 AND NOT granted)",
        )
    })
    .await;

    server.kill9().await;

    sqlx::Connection::close(holder).await.unwrap();
    // Its session finds nobody to answer to, and rolls back.
    wait::until_equal("sessions of the dead", LONG, 0_i64, || {
        stage.database.one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'",
        )
    })
    .await;
    assert_eq!((pruned(&stage.database).await, count(&stage.database, "event_outbox").await), (2_000, 7_000));
    reconcile(&stage.database, 9_000).await;

    // A restart at once finds the dead one's lease, and later that it is over.
    let mut config = stage.config.clone();
    config.set("retention", "interval", "\"2m\"");
    let server = ServerProcess::start_logging(&config, "holdfast_server=debug").await;
    stage.logs.wait_for("looked whether retention is due").await;
    assert_eq!(pruned(&stage.database).await, 2_000);
    outlive_the_lease(&stage.database).await;
    stage.logs.wait_for("pruned what was past its retention").await;

    // The cap is the cycle's, not each replica's.
    assert_eq!((pruned(&stage.database).await, count(&stage.database, "event_outbox").await), (4_000, 5_000));
    let (cycles, resting): (i64, bool) = {
        let mut connection = stage.database.connect().await;
        let row = sqlx::query_as("SELECT generation, leased_until IS NULL FROM holdfast.retention_cycle")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        sqlx::Connection::close(connection).await.unwrap();
        row
    };
    assert_eq!((cycles, resting), (2, true), "begun once, gone on with once");
    reconcile(&stage.database, 9_000).await;
    holdfast_tests::scene::Server::stop(server).await;
    stage.logs.check();
}
