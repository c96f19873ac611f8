//! Pruning costs what it prunes, whatever else lies in the tables.

use holdfast_server::outbox;
use holdfast_tests::{database::Database, logs::Logs};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use super::put_published;

const MONTH: &str = "2592000";

/// The plan of one execution that is rolled back, as text, and the buffers it touched.
async fn explain(connection: &mut PgConnection, sql: &str, arguments: &str, generic: bool) -> (String, i64) {
    let mut tx = connection.begin().await.unwrap();
    tx.execute(AssertSqlSafe(format!("PREPARE s AS {sql}"))).await.unwrap();
    if generic {
        tx.execute("SET LOCAL plan_cache_mode = force_generic_plan").await.unwrap();
    }
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE s{arguments}");
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *tx).await.unwrap();
    let text: String = row.try_get_unchecked(0).unwrap();
    tx.rollback().await.unwrap();
    connection.execute("DEALLOCATE s").await.unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    let touched = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
    (text.clone(), touched("Shared Hit Blocks") + touched("Shared Read Blocks"))
}

/// No table of ours is read whole.
fn assert_by_index(plan: &str, table: &str, index: &str) {
    let plan: Value = serde_json::from_str(plan).unwrap();
    let mut nodes = vec![&plan[0]["Plan"]];
    let mut found = false;
    while let Some(node) = nodes.pop() {
        assert!(node["Node Type"] != "Seq Scan" || node["Relation Name"] != table, "{plan:#}");
        found |= node["Index Name"] == index;
        nodes.extend(node["Plans"].as_array().into_iter().flatten());
    }
    assert!(found, "without {index}: {plan:#}");
}

fn prune(module: &[(&'static str, &'static str)]) -> &'static str {
    module.iter().find(|(name, _)| *name == "prune").unwrap().1
}

#[tokio::test]
async fn a_batch_costs_the_same_among_20000_and_among_100000_rows_that_stay() {
    Logs::capture();
    let mut costs = Vec::new();
    for staying in [20_000, 100_000] {
        let database = Database::service().await;
        put_published(&database, staying, "3 days").await;
        // Old ones that must not be in the way.
        database
            .run(
                "INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, hold_operation_id, hold_generation)
                 SELECT 'order.held', '{}', now() - interval '90 days', 'op-' || n, 1 FROM generate_series(1, 5000) AS n;
                 INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, admitted_at)
                 SELECT 'order.aside', '{}', now() - interval '90 days', now() FROM generate_series(1, 5000) AS n;
                 INSERT INTO holdfast.hold_outcome
                 SELECT 'op-' || n, 1, 'released', now() - interval '1 day' FROM generate_series(5001, 15000) AS n;
                 INSERT INTO holdfast.hold_outcome
                 SELECT 'op-' || n, 1, 'released', now() - interval '40 days' FROM generate_series(15001, 15300) AS n",
            )
            .await;
        database.run("VACUUM ANALYZE holdfast.event_outbox, holdfast.hold_outcome").await;
        let mut connection = database.connect().await;
        for generic in [false, true] {
            let (plan, nothing) =
                explain(&mut connection, prune(outbox::QUERIES), &format!("({MONTH}, 1000, 1)"), generic)
                    .await;
            assert_by_index(&plan, "event_outbox", "event_outbox_published");
            assert!(nothing < 50, "nothing is due: {nothing} buffers");
            let (plan, decisions) =
                explain(&mut connection, prune(outbox::holds::QUERIES), &format!("({MONTH}, 1000)"), generic)
                    .await;
            assert_by_index(&plan, "hold_outcome", "hold_outcome_decided");
            assert_by_index(&plan, "event_outbox", "event_outbox_held_pair");
            costs.push(("decisions", generic, decisions));
        }
        put_published(&database, 1_500, "31 days").await;
        let (_, some) =
            explain(&mut connection, prune(outbox::QUERIES), &format!("({MONTH}, 1000, 1)"), true).await;
        costs.push(("events", true, some));
        connection.close().await.unwrap();
    }
    let (few, many) = costs.split_at(costs.len() / 2);
    for (few, many) in few.iter().zip(many) {
        assert!(many.2 < few.2 * 3 / 2, "buffers touched: {costs:?}");
    }
}

#[tokio::test]
async fn no_prune_reads_a_table_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let options = holdfast_server::db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: holdfast_tests::wait::LONG,
    };
    let pool = holdfast_server::db::Pool::new(&options).unwrap();
    for (sql, arguments, table, index) in [
        (prune(outbox::QUERIES), "(2592000, 1000, 1)", "event_outbox", "event_outbox_published"),
        (prune(outbox::holds::QUERIES), "(2592000, 1000)", "hold_outcome", "hold_outcome_decided"),
    ] {
        let mut tx = pool.begin(holdfast_server::db::Begin::Forgettable).await.unwrap();
        tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {sql}"))).await.unwrap();
        tx.conn().execute("SET LOCAL plan_cache_mode = force_generic_plan").await.unwrap();
        let sql = format!("EXPLAIN (FORMAT JSON) EXECUTE s{arguments}");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(tx.conn()).await.unwrap();
        assert_by_index(&row.try_get_unchecked::<String, _>(0).unwrap(), table, index);
        tx.conn().execute("DEALLOCATE s").await.unwrap();
        tx.rollback().await;
    }
}
