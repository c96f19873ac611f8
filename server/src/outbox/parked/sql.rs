//! The statements about parked rows. One function a file of `queries/`.

use uuid::Uuid;

use super::super::sql::tally_slot;
use super::{Filter, Parked};
use crate::db;

const LIST: &str = include_str!("queries/list.sql");
const UNPARK: &str = include_str!("queries/unpark.sql");
const DISCARD: &str = include_str!("queries/discard.sql");
const LEFT: &str = include_str!("queries/left.sql");
const FIND: &str = include_str!("queries/find.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] =
    &[("list", LIST), ("unpark", UNPARK), ("discard", DISCARD), ("left", LEFT), ("find", FIND)];

pub(super) async fn list(
    conn: &mut db::Conn,
    filter: &Filter,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Parked>, db::Error> {
    Ok(sqlx::query_as(LIST)
        .bind(after)
        .bind(&filter.event_type)
        .bind(&filter.ordering_key)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await?)
}

pub(super) async fn unpark(conn: &mut db::Conn, ids: &[Uuid]) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(UNPARK).bind(ids).fetch_all(conn).await?)
}

/// A row that was discarded.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Gone {
    pub id: Uuid,
    pub ordering_key: Option<String>,
}

pub(super) async fn discard(conn: &mut db::Conn, ids: &[Uuid]) -> Result<Vec<Gone>, db::Error> {
    Ok(sqlx::query_as(DISCARD).bind(ids).bind(tally_slot()).fetch_all(conn).await?)
}

/// A parked row, and whether it is wanted.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Found {
    pub id: Uuid,
    pub seq: i64,
    pub wanted: bool,
}

pub(super) async fn find(
    conn: &mut db::Conn,
    filter: &Filter,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Found>, db::Error> {
    Ok(sqlx::query_as(FIND)
        .bind(after)
        .bind(&filter.event_type)
        .bind(&filter.ordering_key)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await?)
}

/// A row that a verb left alone.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Left {
    pub id: Uuid,
    pub parked: bool,
}

pub(super) async fn left(conn: &mut db::Conn, ids: &[Uuid]) -> Result<Vec<Left>, db::Error> {
    Ok(sqlx::query_as(LEFT).bind(ids).fetch_all(conn).await?)
}
