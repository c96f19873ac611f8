//! The outbox's rows as the resolver sees them.

use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::PgConnection;

use super::sql;
use crate::db;
use crate::tickets::{Applied, Resolvable, Verdicts};

/// Registers `event_outbox` with the tickets' resolver.
#[derive(Debug, Default)]
pub struct OutboxRows;

impl Resolvable for OutboxRows {
    fn undecided<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        after: Option<i64>,
        limit: i64,
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>> {
        sql::undecided(conn, after, limit).boxed()
    }

    fn apply<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        verdicts: &'a Verdicts,
    ) -> BoxFuture<'a, Result<Applied, db::Error>> {
        async move {
            let kept = sql::keep(conn, &verdicts.committed).await?;
            let discarded = sql::discard_rolled_back(conn, &verdicts.rolled_back).await?;
            let more = kept >= sql::DECIDED_PER_TX || discarded >= sql::DECIDED_PER_TX;
            Ok(Applied { kept, discarded, more })
        }
        .boxed()
    }

    fn naming<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        tickets: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<i64>, db::Error>> {
        sql::naming(conn, tickets).boxed()
    }
}
