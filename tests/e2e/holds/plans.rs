//! The statements about holds reach their rows by their indexes, whatever the planner knew when it planned them.

use holdfast_server::{
    db::{self, Begin, Pool},
    outbox,
};
use holdfast_tests::{database::Database, logs::Logs, wait::LONG};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

#[tokio::test]
async fn no_statement_about_holds_reads_the_outbox_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    let pool = Pool::new(&options).unwrap();
    let (ids, text, none) =
        ("ARRAY[gen_random_uuid(), gen_random_uuid()]", "ARRAY['{}', '{}']", "ARRAY[NULL, NULL]");
    let group = format!(
        "({ids}, {none}::uuid[], {text}, {text}, {none}, {none}::bytea[], ARRAY[1, 2]::bigint[], ARRAY[true, false],
          ARRAY['a', 'b'], ARRAY[1, 2]::bigint[])"
    );
    let pair = "event_outbox_held_pair";
    for (name, arguments, indexes) in [
        ("release", "('op', 1, 1000)", vec![pair, "event_outbox_pkey"]),
        ("drop", "('op', 1, 1000, 1)", vec![pair, "event_outbox_pkey"]),
        ("list", "('', 0, NULL, 100)", vec![pair, "hold_outcome_pkey"]),
        ("left_behind", "('', 0, 1000, 30)", vec![pair, "hold_outcome_pkey"]),
        ("look", "", vec!["event_outbox_held"]),
        ("decide", "('op', 1, 'released')", vec!["hold_outcome_pkey"]),
        ("outcome", "('op', 1)", vec!["hold_outcome_pkey"]),
        ("stage_held_group", group.as_str(), vec!["hold_outcome_pkey", "event_outbox_pkey"]),
    ] {
        let all = outbox::holds::QUERIES.iter().chain(outbox::QUERIES);
        let sql = all.clone().find(|(file, _)| *file == name).unwrap().1;
        let mut tx = pool.begin(Begin::Durable).await.unwrap();
        tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {sql}"))).await.unwrap();
        // As the sixth and later executions are planned: once for all arguments.
        tx.conn().execute("SET LOCAL plan_cache_mode = force_generic_plan").await.unwrap();
        let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN (FORMAT TEXT) EXECUTE s{arguments}")));
        let rows = tx.conn().fetch_all(explain).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan on event_outbox"), "{name}: {plan}");
        for index in indexes {
            assert!(plan.contains(index), "{name} without {index}: {plan}");
        }
        tx.conn().execute("DEALLOCATE s").await.unwrap();
        tx.rollback().await;
    }
}
