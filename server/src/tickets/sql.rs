//! All SQL that names `holdfast.ticket`.

use sqlx::Row as _;

use super::holders::Holder;
use crate::db;

const FREE: &str = include_str!("queries/free.sql");
const COMMITTED: &str = include_str!("queries/committed.sql");
const ALL_AFTER: &str = include_str!("queries/all_after.sql");
const SWEEP: &str = include_str!("queries/sweep.sql");
const HOLDERS: &str = include_str!("queries/holders.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[
    ("free", FREE),
    ("committed", COMMITTED),
    ("all_after", ALL_AFTER),
    ("sweep", SWEEP),
    ("holders", HOLDERS),
];

pub(super) async fn free(conn: &mut db::Conn, tickets: &[i64]) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(FREE).bind(tickets).fetch_all(conn).await?)
}

pub(super) async fn committed(conn: &mut db::Conn, tickets: &[i64]) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(COMMITTED).bind(tickets).fetch_all(conn).await?)
}

pub(super) async fn all_after(
    conn: &mut db::Conn,
    after: Option<i64>,
    limit: i64,
) -> Result<Vec<i64>, db::Error> {
    Ok(sqlx::query_scalar(ALL_AFTER).bind(after).bind(limit).fetch_all(conn).await?)
}

pub(super) async fn sweep(conn: &mut db::Conn, tickets: &[i64]) -> Result<u64, db::Error> {
    Ok(sqlx::query(SWEEP).bind(tickets).execute(conn).await?.rows_affected())
}

pub(super) async fn holders(conn: &mut db::Conn, tickets: &[i64]) -> Result<Vec<Holder>, db::Error> {
    Ok(sqlx::query_as(HOLDERS).bind(tickets).fetch_all(conn).await?)
}

/// [`free`] and [`committed`] of the same tickets as statements without parameters.
pub(super) fn questions(tickets: &[i64]) -> [String; 2] {
    let list = tickets.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    [FREE, COMMITTED].map(|query| query.replace("$1::bigint[]", &format!("'{{{list}}}'::bigint[]")))
}

/// The tickets that a question was answered with.
pub(super) fn answer(rows: &db::Answer) -> Result<Vec<i64>, db::Error> {
    rows.iter().map(|row| row.try_get(0).map_err(db::Error::from)).collect()
}
