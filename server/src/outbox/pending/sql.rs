//! The statements about rows that are not out. One function a file of `queries/`.

use time::OffsetDateTime;
use uuid::Uuid;

use super::super::sql::Blocks;
use super::{Filter, Page, Pending, Why};
use crate::db;

const PAGE: &str = include_str!("queries/page.sql");
const RETRY: &str = include_str!("queries/retry.sql");
const LEFT: &str = include_str!("queries/left.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[("page", PAGE), ("retry", RETRY), ("left", LEFT)];

/// One line of `page.sql`: how far it came, and a row where there is one.
#[derive(Debug, sqlx::FromRow)]
struct Line {
    last: Option<i64>,
    looked: i64,
    id: Option<Uuid>,
    seq: Option<i64>,
    why: Option<String>,
    behind: Option<Uuid>,
    event_type: Option<String>,
    ordering_key: Option<String>,
    created_at: Option<OffsetDateTime>,
    attempts: Option<i32>,
    last_error: Option<String>,
    next_attempt_at: Option<OffsetDateTime>,
    ticket: Option<i64>,
    hold_operation_id: Option<String>,
    hold_generation: Option<i64>,
    parked_at: Option<OffsetDateTime>,
    parked_reason: Option<String>,
    claimed_at: Option<OffsetDateTime>,
    claimed_by: Option<String>,
    alone: Option<bool>,
}

impl Line {
    fn pending(self) -> Option<Pending> {
        Some(Pending {
            id: self.id?,
            seq: self.seq?,
            why: Why::parse(self.why.as_deref()?)?,
            behind: self.behind,
            event_type: self.event_type.unwrap_or_default(),
            ordering_key: self.ordering_key,
            created_at: self.created_at,
            attempts: self.attempts.unwrap_or_default(),
            last_error: self.last_error.unwrap_or_default(),
            next_attempt_at: self.next_attempt_at,
            ticket: self.ticket.unwrap_or_default(),
            hold: self.hold_operation_id.zip(self.hold_generation),
            parked_at: self.parked_at,
            parked_reason: self.parked_reason.unwrap_or_default(),
            claimed_at: self.claimed_at,
            claimed_by: self.claimed_by.unwrap_or_default(),
            alone: self.alone.unwrap_or_default(),
        })
    }
}

/// At most `limit` rows of the next `scan` unpublished ones.
pub(super) async fn page(
    conn: &mut db::Conn,
    filter: &Filter,
    after: Option<i64>,
    limit: usize,
    scan: i64,
    blocks: Blocks,
) -> Result<Page, db::Error> {
    let whys = filter.why.as_ref().map(|whys| whys.iter().map(|why| why.as_str()).collect::<Vec<_>>());
    let lines: Vec<Line> = sqlx::query_as(PAGE)
        .bind(after)
        .bind(&filter.event_type)
        .bind(&filter.ordering_key)
        .bind(whys)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(scan)
        .bind(blocks.unroutable)
        .bind(blocks.parked)
        .fetch_all(conn)
        .await?;
    let reached = lines.first().and_then(|line| line.last).filter(|_| lines[0].looked >= scan);
    let events: Vec<Pending> = lines.into_iter().filter_map(Line::pending).collect();
    // A full page ends at its last row, any other one where the look ended.
    let next = match events.last() {
        Some(last) if events.len() >= limit => Some(last.seq),
        _ => reached,
    };
    Ok(Page { events, next })
}

pub(super) async fn retry(conn: &mut db::Conn, ids: &[Uuid]) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(RETRY).bind(ids).fetch_all(conn).await?)
}

/// A row that a verb left alone.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Left {
    pub id: Uuid,
    pub behind: Option<Uuid>,
    pub why: String,
}

pub(super) async fn left(conn: &mut db::Conn, ids: &[Uuid], blocks: Blocks) -> Result<Vec<Left>, db::Error> {
    Ok(sqlx::query_as(LEFT).bind(ids).bind(blocks.unroutable).bind(blocks.parked).fetch_all(conn).await?)
}
