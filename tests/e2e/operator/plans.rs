//! A page costs a page, and the verbs reach their rows by their indexes, whatever the planner knew when it planned them.

use holdfast_server::{
    db::{self, Begin, Pool},
    outbox, tickets,
};
use holdfast_tests::{database::Database, logs::Logs, wait::LONG};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::{BACKING_OFF, PARKED, put_many};

/// As the server connects: it tells the planner some things.
fn pool(database: &Database) -> Pool {
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    Pool::new(&options).unwrap()
}

/// Runs a statement in a transaction that is rolled back; its plan as text.
async fn explain(pool: &Pool, queries: &[(&str, &str)], name: &str, arguments: &str) -> String {
    let sql = queries.iter().find(|(file, _)| *file == name).unwrap().1;
    let mut tx = pool.begin(Begin::Durable).await.unwrap();
    tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {sql}"))).await.unwrap();
    // As the sixth and later executions are planned: once for all arguments.
    tx.conn().execute("SET LOCAL plan_cache_mode = force_generic_plan").await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF) EXECUTE s{arguments}");
    let rows = tx.conn().fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect();
    tx.conn().execute("DEALLOCATE s").await.unwrap();
    tx.rollback().await;
    plan.join("\n")
}

/// The buffers that the whole statement touched.
fn buffers(plan: &str) -> i64 {
    let line = plan.lines().find(|line| line.trim().starts_with("Buffers: shared")).unwrap();
    let number = |what: &str| {
        let after = line.split(what).nth(1)?;
        after.split([' ', ',']).next()?.parse::<i64>().ok()
    };
    number("hit=").unwrap_or(0) + number("read=").unwrap_or(0)
}

const PAGE: &str = "(NULL, NULL, NULL, NULL, 100, 5000, true, true)";
const FILTERED: &str = "(NULL, 'order.none', NULL, ARRAY['behind'], 100, 5000, true, true)";

#[tokio::test]
async fn a_page_of_what_is_not_out_costs_the_same_among_10000_and_among_40000_rows() {
    Logs::capture();
    let (mut pages, mut filtered) = (Vec::new(), Vec::new());
    for rows in [10_000, 40_000] {
        let database = Database::service().await;
        put_many(&database, "order.many", rows / 2, &BACKING_OFF).await;
        put_many(&database, "order.many", rows / 2, &[]).await;
        database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        let pool = pool(&database);
        let plan = explain(&pool, outbox::pending::QUERIES, "page", PAGE).await;
        assert!(
            plan.contains("event_outbox_unpublished") && !plan.contains("Seq Scan on event_outbox"),
            "{plan}"
        );
        pages.push(buffers(&plan));
        filtered.push(buffers(&explain(&pool, outbox::pending::QUERIES, "page", FILTERED).await));
    }
    assert!(pages[1] < pages[0] * 3 / 2, "buffers touched: {pages:?}");
    assert!(filtered[1] < filtered[0] * 3 / 2, "buffers touched with a filter: {filtered:?}");
}

#[tokio::test]
async fn no_verb_reads_the_outbox_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let pool = pool(&database);
    let ids = "ARRAY[gen_random_uuid(), gen_random_uuid()]";
    for filled in [false, true] {
        if filled {
            put_many(&database, "order.many", 5_000, &BACKING_OFF).await;
            put_many(&database, "order.many", 5_000, &PARKED).await;
            database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        }
        for (queries, name, arguments, index) in [
            (outbox::pending::QUERIES, "page", PAGE.to_owned(), "event_outbox_unpublished"),
            (outbox::pending::QUERIES, "retry", format!("({ids})"), "event_outbox_pkey"),
            (outbox::pending::QUERIES, "left", format!("({ids}, true, true)"), "event_outbox_line"),
            (outbox::parked::QUERIES, "find", "(NULL, 'x', NULL, 5000)".to_owned(), "event_outbox_parked"),
            (outbox::parked::QUERIES, "unpark", format!("({ids})"), "event_outbox_pkey"),
            (outbox::parked::QUERIES, "discard", format!("({ids}, 1)"), "event_outbox_pkey"),
            (outbox::unresolved::QUERIES, "page", "(NULL, 101)".to_owned(), "event_outbox_unresolved"),
        ] {
            let plan = explain(&pool, queries, name, &arguments).await;
            assert!(!plan.contains("Seq Scan on event_outbox"), "{name}: {plan}");
            assert!(plan.contains(index), "{name} without {index}: {plan}");
        }
        let plan = explain(&pool, tickets::QUERIES, "holders", "(ARRAY[1, -7]::bigint[])").await;
        assert!(plan.contains("pg_lock_status"), "{plan}");
    }
}
