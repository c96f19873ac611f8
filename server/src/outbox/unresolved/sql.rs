//! The statement about tickets that rows wait for.

use time::OffsetDateTime;

use crate::db;

const PAGE: &str = include_str!("queries/page.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[("page", PAGE)];

/// A ticket with undecided rows.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Waiting {
    pub ticket: i64,
    pub events: i64,
    pub oldest: Option<OffsetDateTime>,
}

pub(super) async fn page(
    conn: &mut db::Conn,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Waiting>, db::Error> {
    Ok(sqlx::query_as(PAGE)
        .bind(after)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await?)
}
