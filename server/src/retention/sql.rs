//! All SQL that names `holdfast.retention_cycle`. One function a file of `queries/`.

use std::time::Duration;

use crate::db;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    LOOK = "look",
    START = "start",
    RENEW = "renew",
    FINISH = "finish",
}

/// Where the cadence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Seen {
    /// Nobody runs a cycle.
    pub free: bool,
    /// There is one to begin, or one that has not come to its end.
    pub due: bool,
    /// When one last came to its end, in seconds since the epoch; 0: never.
    pub succeeded: i64,
    /// Whether that one stopped at its cap.
    pub capped: bool,
}

pub(super) async fn look(
    conn: &mut db::Conn,
    interval: Duration,
    lease: Duration,
) -> Result<Seen, db::Error> {
    let seen = sqlx::query_as(LOOK)
        .bind(interval.as_secs_f64())
        .bind(lease.as_secs_f64())
        .fetch_optional(conn)
        .await?;
    Ok(seen.unwrap_or(Seen { free: true, due: true, succeeded: 0, capped: false }))
}

/// A cycle that is ours for as long as nobody takes it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Begun {
    pub generation: i64,
    /// What it has pruned before, in somebody else's hands.
    pub pruned: i64,
}

pub(super) async fn start(
    conn: &mut db::Conn,
    interval: Duration,
    lease: Duration,
    jitter: f64,
) -> Result<Option<Begun>, db::Error> {
    Ok(sqlx::query_as(START)
        .bind(interval.as_secs_f64())
        .bind(lease.as_secs_f64())
        .bind(jitter)
        .fetch_optional(conn)
        .await?)
}

/// Whether the cycle is still ours.
pub(super) async fn renew(
    conn: &mut db::Conn,
    generation: i64,
    gone: u64,
    lease: Duration,
) -> Result<bool, db::Error> {
    let ours: Option<bool> = sqlx::query_scalar(RENEW)
        .bind(generation)
        .bind(i64::try_from(gone).unwrap_or(i64::MAX))
        .bind(lease.as_secs_f64())
        .fetch_optional(conn)
        .await?;
    Ok(ours.is_some())
}

/// When it came to its end, in seconds since the epoch; `None`: it is no longer ours.
pub(super) async fn finish(
    conn: &mut db::Conn,
    generation: i64,
    capped: bool,
) -> Result<Option<i64>, db::Error> {
    Ok(sqlx::query_scalar(FINISH).bind(generation).bind(capped).fetch_optional(conn).await?)
}
