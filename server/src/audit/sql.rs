//! All SQL that names `holdfast.admin_audit` and its outcomes.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{Call, Ended, Filter, Recorded};
use crate::db;

const CALL: &str = include_str!("queries/call.sql");
const OUTCOME: &str = include_str!("queries/outcome.sql");
const LIST: &str = include_str!("queries/list.sql");

/// Every statement of this module, by file name: a test PREPAREs them all, against a control database.
pub const QUERIES: &[(&str, &str)] = &[("call", CALL), ("outcome", OUTCOME), ("list", LIST)];

pub(super) async fn call(
    conn: &mut db::Conn,
    call: &Call,
    missing: Option<&str>,
    arguments: &str,
) -> Result<i64, db::Error> {
    let id = sqlx::query_scalar(CALL)
        .bind(&call.request_id)
        .bind(&call.sub)
        .bind(&call.service)
        .bind(call.verb)
        .bind(missing.is_none())
        .bind(arguments)
        .bind(missing);
    Ok(id.fetch_one(conn).await?)
}

pub(super) async fn outcome(
    conn: &mut db::Conn,
    id: i64,
    outcome: &str,
    counts: Option<&str>,
    reason: Option<&str>,
) -> Result<(), db::Error> {
    sqlx::query(OUTCOME).bind(id).bind(outcome).bind(counts).bind(reason).execute(conn).await?;
    Ok(())
}

pub(super) async fn list(
    conn: &mut db::Conn,
    filter: &Filter,
    before: Option<i64>,
    limit: usize,
) -> Result<Vec<Recorded>, db::Error> {
    let rows = sqlx::query(LIST)
        .bind(before)
        .bind(&filter.service)
        .bind(&filter.sub)
        .bind(&filter.verb)
        .bind(filter.from)
        .bind(filter.to)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await?;
    Ok(rows.iter().map(recorded).collect::<Result<_, _>>()?)
}

fn recorded(row: &PgRow) -> Result<Recorded, sqlx::Error> {
    let text = |name: &str| row.try_get::<Option<String>, _>(name).map(Option::unwrap_or_default);
    let ended = match row.try_get::<Option<String>, _>("outcome")?.as_deref() {
        _ if !row.try_get::<bool, _>("allowed")? => Ended::Denied(text("missing_scope")?),
        None => Ended::Unknown,
        Some("done") => Ended::Done { at: row.try_get("ended_at")?, counts: text("counts")? },
        Some(_) => Ended::Failed { at: row.try_get("ended_at")?, reason: text("reason")? },
    };
    Ok(Recorded {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        request_id: row.try_get("request_id")?,
        sub: row.try_get("sub")?,
        service: row.try_get("service")?,
        verb: row.try_get("verb")?,
        arguments: row.try_get("arguments")?,
        ended,
    })
}
