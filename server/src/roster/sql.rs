//! All SQL that names `holdfast.known_service`.

use super::Known;
use crate::db;

const MEET: &str = include_str!("queries/meet.sql");
const COUNT: &str = include_str!("queries/count.sql");
const ABSENT: &str = include_str!("queries/absent.sql");
const FORGET: &str = include_str!("queries/forget.sql");

/// Every statement of this module, by file name: a test PREPAREs them all, against a control database.
pub const QUERIES: &[(&str, &str)] =
    &[("meet", MEET), ("count", COUNT), ("absent", ABSENT), ("forget", FORGET)];

pub(super) async fn meet(conn: &mut db::Conn, names: &[String]) -> Result<(), db::Error> {
    sqlx::query(MEET).bind(names).execute(conn).await?;
    Ok(())
}

pub(super) async fn count(conn: &mut db::Conn, names: &[String], rows: &[i64]) -> Result<(), db::Error> {
    sqlx::query(COUNT).bind(names).bind(rows).execute(conn).await?;
    Ok(())
}

pub(super) async fn absent(conn: &mut db::Conn, configured: &[String]) -> Result<Vec<Known>, db::Error> {
    Ok(sqlx::query_as(ABSENT).bind(configured).fetch_all(conn).await?)
}

pub(super) async fn forget(conn: &mut db::Conn, name: &str) -> Result<Option<Known>, db::Error> {
    Ok(sqlx::query_as(FORGET).bind(name).fetch_optional(conn).await?)
}
