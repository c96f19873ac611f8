//! Rows on their way in.

use time::OffsetDateTime;
use uuid::Uuid;

use super::*;
use crate::db;

/// Rows to insert, column by column; all of one length.
#[derive(Debug, Default)]
pub(in crate::outbox) struct NewRows {
    pub ids: Vec<Uuid>,
    pub aggregate_ids: Vec<Option<Uuid>>,
    pub event_types: Vec<String>,
    pub envelopes: Vec<String>,
    pub ordering_keys: Vec<Option<String>>,
    pub content_hashes: Vec<Vec<u8>>,
    pub tickets: Vec<Option<i64>>,
    /// Whether the statement adds the time to the envelope.
    pub need_time: Vec<bool>,
    /// What each is held for: operation and generation, or neither.
    pub hold_operation_ids: Vec<Option<String>>,
    pub hold_generations: Vec<Option<i64>>,
}

/// How the insert of a group ended: all of it was written, or nothing.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct GroupInsert {
    stray: bool,
    /// Tickets whose lock nobody holds.
    pub unbound: Vec<i64>,
    /// Ids that were there already.
    pub taken: Vec<Uuid>,
    pub inserted: i64,
}

/// Inserts a group, unless a ticket or an id is against it. `durable`: whether its commit is flushed.
pub(in crate::outbox) async fn stage_group(
    lone: &mut db::Lone,
    rows: &NewRows,
    durable: bool,
) -> Result<GroupInsert, db::Error> {
    let mark = lone.session_mark();
    let answer: GroupInsert = sqlx::query_as(STAGE_GROUP)
        .bind(&rows.ids)
        .bind(&rows.aggregate_ids)
        .bind(&rows.event_types)
        .bind(&rows.envelopes)
        .bind(&rows.ordering_keys)
        .bind(&rows.content_hashes)
        .bind(&rows.tickets)
        .bind(&rows.need_time)
        .bind(if durable { "on" } else { "off" })
        .bind(mark)
        .fetch_one(lone.conn())
        .await?;
    if answer.stray { Err(db::Error::stray()) } else { Ok(answer) }
}

/// How the insert of a group with holds ended: as [`GroupInsert`].
#[derive(Debug, sqlx::FromRow)]
pub(in crate::outbox) struct HeldGroupInsert {
    #[sqlx(flatten)]
    pub group: GroupInsert,
    dropped_operations: Vec<String>,
    dropped_generations: Vec<i64>,
}

impl HeldGroupInsert {
    /// Pairs that were dropped.
    pub(in crate::outbox) fn dropped(&self) -> impl Iterator<Item = (&str, i64)> {
        std::iter::zip(
            self.dropped_operations.iter().map(String::as_str),
            self.dropped_generations.iter().copied(),
        )
    }
}

/// Inserts a group with holds, unless a ticket, an id or a dropped pair is against it; in a transaction that has the pairs'
/// locks since an earlier statement.
pub(in crate::outbox) async fn stage_held_group(
    conn: &mut db::Conn,
    rows: &NewRows,
) -> Result<HeldGroupInsert, db::Error> {
    Ok(sqlx::query_as(STAGE_HELD_GROUP)
        .bind(&rows.ids)
        .bind(&rows.aggregate_ids)
        .bind(&rows.event_types)
        .bind(&rows.envelopes)
        .bind(&rows.ordering_keys)
        .bind(&rows.content_hashes)
        .bind(&rows.tickets)
        .bind(&rows.need_time)
        .bind(&rows.hold_operation_ids)
        .bind(&rows.hold_generations)
        .fetch_one(conn)
        .await?)
}

/// Inserts what is new; answers the ids inserted.
pub(in crate::outbox) async fn insert(conn: &mut db::Conn, rows: &NewRows) -> Result<Vec<Uuid>, db::Error> {
    Ok(sqlx::query_scalar(INSERT)
        .bind(&rows.ids)
        .bind(&rows.aggregate_ids)
        .bind(&rows.event_types)
        .bind(&rows.envelopes)
        .bind(&rows.ordering_keys)
        .bind(&rows.content_hashes)
        .bind(&rows.tickets)
        .bind(&rows.hold_operation_ids)
        .bind(&rows.hold_generations)
        .fetch_all(conn)
        .await?)
}

/// A row that bears an id somebody wants to stage.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(in crate::outbox) struct Existing {
    pub id: Uuid,
    pub ticket: Option<i64>,
    pub content_hash: Option<Vec<u8>>,
}

pub(in crate::outbox) async fn existing(
    conn: &mut db::Conn,
    ids: &[Uuid],
) -> Result<Vec<Existing>, db::Error> {
    Ok(sqlx::query_as(EXISTING).bind(ids).fetch_all(conn).await?)
}

pub(in crate::outbox) async fn replace_rolled_back(
    conn: &mut db::Conn,
    ids: &[Uuid],
    tickets: &[i64],
) -> Result<u64, db::Error> {
    let gone: i64 = sqlx::query_scalar(REPLACE_ROLLED_BACK)
        .bind(ids)
        .bind(tickets)
        .bind(tally_slot())
        .fetch_one(conn)
        .await?;
    Ok(gone.unsigned_abs())
}

pub(in crate::outbox) async fn now(conn: &mut db::Conn) -> Result<OffsetDateTime, db::Error> {
    Ok(sqlx::query_scalar(NOW).fetch_one(conn).await?)
}

/// Makes the commit of a transaction that has written nothing flush what it has seen.
pub(in crate::outbox) async fn flush(conn: &mut db::Conn) -> Result<(), db::Error> {
    let _: bool = sqlx::query_scalar(FLUSH).fetch_one(conn).await?;
    Ok(())
}
