//! All that names `holdfast.drain_pause`, but for the claim itself and the question whether there is work. One function a file
//! of `queries/`.

use sqlx::FromRow as _;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;

use super::Pause;
use crate::db;

const LOOK: &str = include_str!("queries/look.sql");
const PAUSE: &str = include_str!("queries/pause.sql");
const RESUME: &str = include_str!("queries/resume.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] = &[("look", LOOK), ("pause", PAUSE), ("resume", RESUME)];

/// [`look`] as a question that can be sent along with a BEGIN.
pub(super) fn question() -> String {
    LOOK.to_owned()
}

/// A pause as its columns, all absent where there is none.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(in crate::outbox) struct Columns {
    paused_by: Option<String>,
    since: Option<i64>,
    reason: Option<String>,
}

impl Columns {
    pub(in crate::outbox) fn pause(self) -> Option<Pause> {
        let since = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.since?) * 1_000);
        Some(Pause {
            by: self.paused_by?,
            since: since.unwrap_or(OffsetDateTime::UNIX_EPOCH),
            reason: self.reason?,
        })
    }
}

/// What a question was answered with.
pub(super) fn read(row: &PgRow) -> Result<Option<Pause>, db::Error> {
    Ok(Columns::from_row(row)?.pause())
}

pub(super) async fn look(conn: &mut db::Conn) -> Result<Option<Pause>, db::Error> {
    Ok(sqlx::query_as::<_, Columns>(LOOK).fetch_optional(conn).await?.and_then(Columns::pause))
}

pub(super) async fn pause(conn: &mut db::Conn, by: &str, reason: &str) -> Result<Option<Pause>, db::Error> {
    Ok(sqlx::query_as::<_, Columns>(PAUSE)
        .bind(by)
        .bind(reason)
        .fetch_optional(conn)
        .await?
        .and_then(Columns::pause))
}

pub(super) async fn resume(conn: &mut db::Conn) -> Result<Option<Pause>, db::Error> {
    Ok(sqlx::query_as::<_, Columns>(RESUME).fetch_optional(conn).await?.and_then(Columns::pause))
}
