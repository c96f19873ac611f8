//! What the planner makes of the server's statements, on connections as the server has them.

use holdfast_server::db::{self, Begin, Pool};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use crate::{database::Database, wait::LONG};

/// As the server connects: it tells the planner some things.
///
/// # Panics
/// When it cannot.
pub fn pool(database: &Database) -> Pool {
    let options = db::Options {
        url: database.url(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: LONG,
    };
    Pool::new(&options).expect("a pool")
}

/// Runs a statement in a transaction that is rolled back; its plan as text, made once for all arguments. `arguments`: in parentheses, or
/// nothing.
///
/// # Panics
/// When there is no such statement, or it fails.
pub async fn explain(pool: &Pool, queries: &[(&str, &str)], name: &str, arguments: &str) -> String {
    // As the sixth and later executions are planned.
    explain_as("force_generic_plan", pool, queries, name, arguments).await
}

/// The same with a plan for these arguments, as the first five executions have it.
///
/// # Panics
/// As [`explain`].
pub async fn explain_first(pool: &Pool, queries: &[(&str, &str)], name: &str, arguments: &str) -> String {
    explain_as("force_custom_plan", pool, queries, name, arguments).await
}

async fn explain_as(
    mode: &str,
    pool: &Pool,
    queries: &[(&str, &str)],
    name: &str,
    arguments: &str,
) -> String {
    let sql = queries.iter().find(|(file, _)| *file == name).expect("the statement").1;
    let mut tx = pool.begin(Begin::Durable).await.expect("begin");
    tx.conn().execute(AssertSqlSafe(format!("PREPARE s AS {sql}"))).await.expect("prepare");
    let set = format!("SET LOCAL plan_cache_mode = {mode}");
    tx.conn().execute(AssertSqlSafe(set)).await.expect("set");
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF) EXECUTE s{arguments}");
    let rows = tx.conn().fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.expect("explain");
    let plan: Vec<String> = rows.iter().map(|row| row.try_get_unchecked(0).expect("a line")).collect();
    tx.conn().execute("DEALLOCATE s").await.expect("deallocate");
    tx.rollback().await;
    plan.join("\n")
}

/// The buffers that the whole statement touched.
///
/// # Panics
/// When it says nothing of them.
pub fn buffers(plan: &str) -> i64 {
    let line = plan.lines().find(|line| line.trim().starts_with("Buffers: shared")).expect("buffers");
    let number = |what: &str| {
        let after = line.split(what).nth(1)?;
        after.split([' ', ',']).next()?.parse::<i64>().ok()
    };
    number("hit=").unwrap_or(0) + number("read=").unwrap_or(0)
}
