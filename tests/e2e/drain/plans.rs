//! The hot statements read what they need and no more: partial indexes, and nothing unclaimable in the claim's path
//! (design, section 4: without it 299,999 followers of one backing-off head cost 906,842 buffers for ten live rows).

use holdfast_server::{
    db::{self, Begin, Pool},
    outbox::QUERIES,
};
use holdfast_tests::{database::Database, logs::Logs, wait::LONG};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

fn query(name: &str) -> &'static str {
    QUERIES.iter().find(|(file, _)| *file == name).unwrap().1
}

/// An outbox with a past: 20,000 published rows, and `unclaimable` rows of each kind that no claim can take.
async fn outbox(unclaimable: i64) -> Database {
    Logs::capture();
    let database = Database::service().await;
    let insert = "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key";
    let from = format!("FROM generate_series(1, {unclaimable}) AS n");
    database
        .run(&format!(
            "{insert}, admitted_at, published_at)
                 SELECT 'order.placed', '{{}}', 'k-' || n % 500, now(), now() FROM generate_series(1, 20000) AS n;
             {insert}, ticket, resolved_at) SELECT 'order.placed', '{{}}', 'open-' || n % 50, 4711, NULL {from};
             {insert}, admitted_at, next_attempt_at)
                 SELECT 'order.placed', '{{}}', 'off-' || n, now(), now() + interval '1 hour' {from};
             {insert}, admitted_at) SELECT 'order.placed', '{{}}', 'off-' || n % 20, now() {from};
             {insert}, admitted_at, next_attempt_at, lone_claims)
                 SELECT 'order.placed', '{{}}', 'lone-' || n, now(), now() + interval '1 hour', 2 {from};
             {insert}, hold_operation_id, hold_generation) SELECT 'order.placed', '{{}}', 'held', 'op', 1 {from};
             {insert}) SELECT 'order.placed', '{{}}', 'live-' || n FROM generate_series(1, 10) AS n;"
        ))
        .await;
    database.run("VACUUM ANALYZE holdfast.event_outbox").await;
    database
}

/// Runs a statement in a transaction that is rolled back; its plan and the buffers it touched.
pub(crate) async fn explain(connection: &mut PgConnection, name: &str, arguments: &str) -> (Value, i64) {
    let mut tx = connection.begin().await.unwrap();
    tx.execute(AssertSqlSafe(format!("PREPARE s AS {}", query(name)))).await.unwrap();
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE s{arguments}");
    let answer = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *tx).await.unwrap();
    let text: String = answer.try_get_unchecked(0).unwrap();
    tx.rollback().await.unwrap();
    connection.execute("DEALLOCATE s").await.unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    let plan = plan[0]["Plan"].clone();
    let touched = |name: &str| plan[name].as_i64().unwrap();
    let buffers = touched("Shared Hit Blocks") + touched("Shared Read Blocks");
    (plan, buffers)
}

/// Every node of a plan as (type, index or relation).
fn nodes(plan: &Value) -> Vec<(String, String)> {
    let text = |name: &str| plan[name].as_str().unwrap_or_default().to_owned();
    let place = if plan["Index Name"].is_string() { text("Index Name") } else { text("Relation Name") };
    let mut all = vec![(text("Node Type"), place)];
    all.extend(plan["Plans"].as_array().into_iter().flatten().flat_map(nodes));
    all
}

/// The arguments of `stage_group` for these ids.
fn group_of(ids: &str) -> String {
    let (text, none) = ("array_fill('{}'::text, ARRAY[10])", "array_fill(NULL::text, ARRAY[10])");
    format!(
        "({ids}, {none}::uuid[], {text}, {text}, {none}, {none}::bytea[], {none}::bigint[],
          array_fill(false, ARRAY[10]), 'off', NULL)"
    )
}

fn assert_no_scan_of_the_outbox(name: &str, plan: &Value) {
    let scans: Vec<_> = nodes(plan)
        .into_iter()
        .filter(|(kind, place)| kind == "Seq Scan" && place == "event_outbox")
        .collect();
    assert_eq!(scans, [], "{name}: {plan:#}");
}

#[tokio::test]
async fn seeing_what_may_go_costs_the_same_among_100_and_among_5000_rows_that_may_not() {
    let mut buffers = Vec::new();
    for unclaimable in [100, 5_000] {
        let database = outbox(unclaimable).await;
        let mut connection = database.connect().await;
        let (plan, touched) = explain(&mut connection, "see", "(ARRAY[1, 2]::bigint[], 500, 256)").await;
        assert_no_scan_of_the_outbox("see", &plan);
        assert_eq!(plan["Actual Rows"].as_f64(), Some(10.0), "{plan:#}");
        buffers.push(touched);
    }
    assert!(buffers[1] < buffers[0] * 2, "buffers touched: {buffers:?}");
}

/// What is measured every 15 seconds reads so many rows and no more (docs/metrics.md).
#[tokio::test]
async fn measuring_the_outbox_costs_the_same_among_10000_and_among_30000_unpublished_rows() {
    let mut buffers = Vec::new();
    for unclaimable in [2_000, 6_000] {
        let database = outbox(unclaimable).await;
        let mut connection = database.connect().await;
        let (plan, touched) = explain(&mut connection, "depth", "(5000, 1000)").await;
        assert_no_scan_of_the_outbox("depth", &plan);
        buffers.push(touched);
    }
    assert!(buffers[1] < buffers[0] * 5 / 4, "buffers touched: {buffers:?}");
}

#[tokio::test]
async fn the_hot_statements_use_their_partial_indexes() {
    let database = outbox(5_000).await;
    let mut connection = database.connect().await;
    let live = "(SELECT array_agg(id) FROM holdfast.event_outbox WHERE ordering_key LIKE 'live-%')";
    let live: Vec<uuid::Uuid> = sqlx::query_scalar(AssertSqlSafe(format!("SELECT unnest({live})")))
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let live: Vec<String> = live.iter().map(|id| format!("'{id}'")).collect();
    let live = format!("ARRAY[{}]::uuid[]", live.join(","));
    let generations = "array_fill(0::bigint, ARRAY[10])";
    for (name, arguments, index) in [
        ("see", "(ARRAY[1, 2]::bigint[], 500, 256)".to_owned(), "event_outbox_fresh"),
        ("see", "(ARRAY[1, 2]::bigint[], 500, 256)".to_owned(), "event_outbox_unresolved_key"),
        (
            "claim",
            format!("({live}, ARRAY[]::bigint[], 'me', true, ARRAY[1, 2]::bigint[], true)"),
            "event_outbox_line",
        ),
        (
            "claim",
            format!("({live}, ARRAY[]::bigint[], 'me', true, ARRAY[1, 2]::bigint[], true)"),
            "outbox_claim",
        ),
        ("stage_group", group_of(&live), "event_outbox_pkey"),
        ("work_waits", "(60, 256)".to_owned(), "event_outbox_fresh"),
        ("work_waits", "(60, 256)".to_owned(), "event_outbox_ended"),
        ("work_waits", "(60, 256)".to_owned(), "event_outbox_unresolved"),
        ("heal", "(60)".to_owned(), "outbox_claim"),
        ("heal", "(60)".to_owned(), "event_outbox_pkey"),
        ("close_lapsed", "(60)".to_owned(), "event_outbox_pkey"),
        ("settle_ended", "(1000)".to_owned(), "event_outbox_ended"),
        ("lone", String::new(), "event_outbox_lone"),
        ("lone_waits", String::new(), "event_outbox_lone"),
        ("promote", "(ARRAY['off-1', 'live-1'], 128, true, true)".to_owned(), "event_outbox_line"),
        ("stamp", format!("({live}, {generations}, true)"), "event_outbox_pkey"),
        ("undecided", "(NULL, 256)".to_owned(), "event_outbox_unresolved"),
    ] {
        let (plan, _) = explain(&mut connection, name, &arguments).await;
        assert_no_scan_of_the_outbox(name, &plan);
        assert!(nodes(&plan).iter().any(|(_, place)| place == index), "{name} without {index}: {plan:#}");
    }
}

#[tokio::test]
async fn a_claim_and_an_idle_poll_cost_the_same_among_100_and_among_5000_rows_that_may_not_go() {
    let (mut claims, mut polls) = (Vec::new(), Vec::new());
    for unclaimable in [100, 5_000] {
        let database = outbox(unclaimable).await;
        let mut connection = database.connect().await;
        let live: Vec<uuid::Uuid> =
            sqlx::query_scalar("SELECT id FROM holdfast.event_outbox WHERE ordering_key LIKE 'live-%'")
                .fetch_all(&mut connection)
                .await
                .unwrap();
        let live: Vec<String> = live.iter().map(|id| format!("'{id}'")).collect();
        let live = format!("ARRAY[{}]::uuid[]", live.join(","));
        let (plan, touched) = explain(
            &mut connection,
            "claim",
            &format!("({live}, ARRAY[]::bigint[], 'me', true, ARRAY[1, 2]::bigint[], true)"),
        )
        .await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(10.0), "{plan:#}");
        claims.push(touched);
        // Nothing to do: each of the probes runs to its end.
        database
            .run("UPDATE holdfast.event_outbox SET admitted_at = now() WHERE ordering_key LIKE 'live-%'")
            .await;
        database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        polls.push(explain(&mut connection, "work_waits", "(60, 256)").await.1);
    }
    assert!(claims[1] < claims[0] * 2, "buffers touched by the claim: {claims:?}");
    assert!(polls[1] < polls[0] * 2 + 10, "buffers touched by the poll: {polls:?}");
}

#[tokio::test]
async fn a_claim_changes_no_index_of_the_outbox() {
    let database = Database::service().await;
    let ids: Vec<uuid::Uuid> = {
        let mut connection = database.connect().await;
        sqlx::query_scalar(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key)
             SELECT 'order.placed', jsonb_build_object('data', repeat('x', 1000)), 'k-' || n
             FROM generate_series(1, 200) AS n RETURNING id",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap()
    };
    let mut connection = database.connect().await;
    let mut tx = connection.begin().await.unwrap();
    let claimed = sqlx::query(query("claim"))
        .bind(&ids)
        .bind(Vec::<i64>::new())
        .bind("me")
        .bind(true)
        .bind(Vec::<i64>::new())
        .bind(true)
        .fetch_all(&mut *tx)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 200);

    let hot: i64 =
        sqlx::query_scalar("SELECT pg_stat_get_xact_tuples_hot_updated('holdfast.event_outbox'::regclass)")
            .fetch_one(&mut *tx)
            .await
            .unwrap();

    assert_eq!(hot, 200, "heap-only: the new version is on the row's page, and no index points to it");
}

#[tokio::test]
async fn a_plan_made_while_the_outbox_was_empty_reads_no_table_whole() {
    let database = Database::service().await;
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    let pool = Pool::new(&options).unwrap();
    let ids = "ARRAY[gen_random_uuid(), gen_random_uuid()]";
    for (name, arguments) in [
        ("see", "(ARRAY[1, 2]::bigint[], 500, 256)".to_owned()),
        ("claim", format!("({ids}, ARRAY[1]::bigint[], 'me', true, ARRAY[2]::bigint[], true)")),
        ("stamp", format!("({ids}, ARRAY[1, 1]::bigint[], true)")),
        (
            "fail",
            format!(
                "({ids}, ARRAY[1, 1]::bigint[], ARRAY['a', 'b'], ARRAY[1, 1]::float8[], ARRAY[true, true], true, 'me')"
            ),
        ),
        ("give_back", format!("({ids}, ARRAY[1, 1]::bigint[], true, 'me')")),
        ("skipped", format!("({ids}, ARRAY[1, 1]::bigint[], true, 'me')")),
        ("absolve", format!("({ids}, ARRAY[1, 1]::bigint[])")),
        ("promote", "(ARRAY['a', 'b'], 128, true, true)".to_owned()),
        ("heal", "(60)".to_owned()),
        ("keep", "(ARRAY[1, 2]::bigint[], 1000)".to_owned()),
        ("discard_rolled_back", "(ARRAY[1, 2]::bigint[], 1000, 1)".to_owned()),
        ("work_waits", "(60, 256)".to_owned()),
        ("existing", format!("({ids})")),
        ("stage_group", group_of(ids)),
    ] {
        let mut tx = pool.begin(Begin::Durable).await.unwrap();
        tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {}", query(name)))).await.unwrap();
        // As the sixth and later executions are planned: once for all arguments.
        tx.conn().execute("SET LOCAL plan_cache_mode = force_generic_plan").await.unwrap();
        let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN (FORMAT JSON) EXECUTE s{arguments}")));
        let row = tx.conn().fetch_one(explain).await.unwrap();
        let text: String = row.try_get_unchecked(0).unwrap();
        let plan: Value = serde_json::from_str(&text).unwrap();
        assert_no_scan_of_the_outbox(name, &plan[0]["Plan"]);
        tx.conn().execute("DEALLOCATE s").await.unwrap();
        tx.rollback().await;
    }
}

/// How many pairs of rows were looked at in vain.
fn removed(plan: &Value) -> f64 {
    let own =
        |name: &str| plan[name].as_f64().unwrap_or_default() * plan["Actual Loops"].as_f64().unwrap_or(1.0);
    let own = own("Rows Removed by Join Filter") + own("Rows Removed by Filter");
    own + plan["Plans"].as_array().into_iter().flatten().map(removed).sum::<f64>()
}

/// What the planner cannot know are the states: of thousands of rows it thinks that two are set aside. (A join then walked them all in
/// the order of ids and compared thousands with thousands, ran into its time limit, and took the stamps of its transaction with it.)
#[tokio::test]
async fn giving_followers_back_is_a_look_up_a_row_however_few_rows_the_planner_thinks_there_are() {
    let database = Database::service().await;
    database
        .run(
            "ALTER TABLE holdfast.event_outbox SET (autovacuum_enabled = off);
             INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key, admitted_at)
             SELECT 'order.placed', '{}', 'k-' || n % 100, now() FROM generate_series(1, 4000) AS n;
             ANALYZE holdfast.event_outbox",
        )
        .await;
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    let pool = Pool::new(&options).unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let mut tx = pool.begin(Begin::Durable).await.unwrap();
        tx.conn().execute(AssertSqlSafe(format!("SET LOCAL plan_cache_mode = {mode}"))).await.unwrap();
        tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {}", query("promote")))).await.unwrap();
        let keys: Vec<_> = (0..100).map(|n| format!("'k-{n}'")).collect();
        let sql = format!(
            "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE s(ARRAY[{}], 128, true, true)",
            keys.join(",")
        );
        let row = tx.conn().fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        let text: String = row.try_get_unchecked(0).unwrap();
        let plan: Value = serde_json::from_str(&text).unwrap();
        let in_vain = removed(&plan[0]["Plan"]);
        assert!(in_vain < 100_000.0, "{mode}: {in_vain} comparisons for 4,000 rows: {plan:#}");
        tx.conn().execute("DEALLOCATE s").await.unwrap();
        tx.rollback().await;
    }
}
