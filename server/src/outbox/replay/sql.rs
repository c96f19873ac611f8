//! All SQL of replays: `holdfast.replay`, `holdfast.replay_row`, and what they ask of the outbox. One function a file of `queries/`.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{About, Failed, Selection};
use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    FRAME = "frame",
    COUNT = "count",
    SAMPLE = "sample",
    INSERT = "insert",
    ABOUT = "about",
    COPY = "copy",
    NEXT = "next",
    SETTLED = "settled",
    FAILED = "failed",
    SENT = "sent",
    CLEAR = "clear",
    FAILURES = "failures",
}

/// What freezes a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Frame {
    pub published_before: OffsetDateTime,
    pub upper_seq: i64,
    pub horizon: Option<OffsetDateTime>,
}

/// How large a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Counts {
    pub matched: i64,
    pub not_published: i64,
}

/// How far the copying has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Copied {
    pub copied: i64,
    pub whole: bool,
}

/// What is to be done with a row of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    Expired,
    Gone,
}

/// A row of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub seq: i64,
    pub event_id: Uuid,
    pub fate: Fate,
    pub ordering_key: Option<String>,
    pub event_type: String,
    pub created_at: i64,
    pub envelope: String,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
}

impl sqlx::FromRow<'_, PgRow> for Row {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            event_id: row.try_get("event_id")?,
            fate: match row.try_get("state")? {
                "goes" => Fate::Goes,
                "expired" => Fate::Expired,
                _ => Fate::Gone,
            },
            ordering_key: row.try_get("ordering_key")?,
            event_type: row.try_get::<Option<_>, _>("event_type")?.unwrap_or_default(),
            created_at: row.try_get::<Option<_>, _>("created_at")?.unwrap_or_default(),
            envelope: row.try_get::<Option<_>, _>("envelope")?.unwrap_or_default(),
            traceparent: row.try_get("traceparent")?,
            tracestate: row.try_get("tracestate")?,
        })
    }
}

impl sqlx::FromRow<'_, PgRow> for About {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            job_id: row.try_get("job_id")?,
            selection: Selection {
                from: row.try_get("window_from")?,
                to: row.try_get("window_to")?,
                event_type: row.try_get("event_type")?,
                ordering_key: row.try_get("ordering_key")?,
            },
            published_before: row.try_get("published_before")?,
            upper_seq: row.try_get("upper_seq")?,
            not_published: row.try_get("not_published")?,
        })
    }
}

fn seconds(horizon: Option<Duration>) -> Option<f64> {
    horizon.map(|horizon| horizon.as_secs_f64())
}

pub(super) async fn frame(conn: &mut db::Conn, horizon: Option<Duration>) -> Result<Frame, db::Error> {
    Ok(sqlx::query_as(FRAME).bind(seconds(horizon)).fetch_one(conn).await?)
}

pub(super) async fn count(
    conn: &mut db::Conn,
    selection: &Selection,
    frame: &Frame,
) -> Result<Counts, db::Error> {
    Ok(sqlx::query_as(COUNT)
        .bind(selection.from)
        .bind(selection.to)
        .bind(&selection.event_type)
        .bind(&selection.ordering_key)
        .bind(frame.published_before)
        .bind(frame.upper_seq)
        .fetch_one(conn)
        .await?)
}

pub(super) async fn sample(conn: &mut db::Conn, about: &About, most: i64) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(SAMPLE)
        .bind(about.selection.from)
        .bind(about.selection.to)
        .bind(&about.selection.event_type)
        .bind(&about.selection.ordering_key)
        .bind(about.published_before)
        .bind(about.upper_seq)
        .bind(most)
        .fetch_all(conn)
        .await?)
}

pub(super) async fn insert(conn: &mut db::Conn, about: &About) -> Result<(), db::Error> {
    sqlx::query(INSERT)
        .bind(about.job_id)
        .bind(about.selection.from)
        .bind(about.selection.to)
        .bind(&about.selection.event_type)
        .bind(&about.selection.ordering_key)
        .bind(about.published_before)
        .bind(about.upper_seq)
        .bind(about.not_published)
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn about(conn: &mut db::Conn, jobs: &[Uuid]) -> Result<Vec<About>, db::Error> {
    Ok(sqlx::query_as(ABOUT).bind(jobs).fetch_all(conn).await?)
}

/// `None`: it had been copied whole before.
pub(super) async fn copy(conn: &mut db::Conn, job: Uuid, most: i64) -> Result<Option<Copied>, db::Error> {
    Ok(sqlx::query_as(COPY).bind(job).bind(most).fetch_optional(conn).await?)
}

pub(super) async fn next(
    conn: &mut db::Conn,
    job: Uuid,
    most: i32,
    horizon: Option<Duration>,
    bytes: i64,
) -> Result<Vec<Row>, db::Error> {
    Ok(sqlx::query_as(NEXT).bind(job).bind(most).bind(seconds(horizon)).bind(bytes).fetch_all(conn).await?)
}

pub(super) async fn settled(
    conn: &mut db::Conn,
    job: Uuid,
    seqs: &[i64],
    sent_to: Option<i64>,
) -> Result<(), db::Error> {
    sqlx::query(SETTLED).bind(job).bind(seqs).bind(sent_to.unwrap_or(0)).execute(conn).await?;
    Ok(())
}

pub(super) async fn failed(
    conn: &mut db::Conn,
    job: Uuid,
    seqs: &[i64],
    errors: &[String],
) -> Result<(), db::Error> {
    sqlx::query(FAILED).bind(job).bind(seqs).bind(errors).execute(conn).await?;
    Ok(())
}

pub(super) async fn sent(conn: &mut db::Conn, job: Uuid, events: &[Uuid]) -> Result<(), db::Error> {
    sqlx::query(SENT).bind(job).bind(events).execute(conn).await?;
    Ok(())
}

/// Tells how many.
pub(super) async fn clear(conn: &mut db::Conn, job: Uuid, most: i64) -> Result<u64, db::Error> {
    Ok(sqlx::query(CLEAR).bind(job).bind(most).execute(conn).await?.rows_affected())
}

pub(super) async fn failures(
    conn: &mut db::Conn,
    job: Uuid,
    after: i64,
    most: i64,
) -> Result<Vec<Failed>, db::Error> {
    Ok(sqlx::query_as(FAILURES).bind(job).bind(after).bind(most).fetch_all(conn).await?)
}
