//! Parking: a row that cannot be delivered is set aside with evidence, until an operator acts, and said once at ERROR.
//!
//! Three ways lead here: no broker could carry it (told by the publisher), the database cannot hand it over (its claim
//! fails, alone), or its claims ended without an outcome again and again although nothing else was in flight (`heal.sql`).

use tracing::error;
use uuid::Uuid;

use super::super::sql::{self, Parking};
use super::Shared;
use crate::db::{self, Begin};

/// Why rows were parked, for the metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    Unsendable,
    Unclaimable,
    Crashes,
}

impl Cause {
    fn label(self) -> &'static str {
        match self {
            Self::Unsendable => "unsendable",
            Self::Unclaimable => "unclaimable",
            Self::Crashes => "crashes",
        }
    }
}

/// Says and counts what was parked; only once that is committed.
pub(super) fn announce(shared: &Shared, cause: Cause, rows: &[Parking]) {
    for row in rows.iter().filter(|row| row.parked) {
        shared.metrics.drain.parked(cause.label());
        error!(
            service.name = %shared.options.service,
            event.id = %row.id,
            reason = %row.reason,
            rows.behind = if shared.options.parked_blocks { row.behind } else { 0 },
            "an event is parked: it waits for an operator"
        );
    }
}

/// Parks the row that was alone in a claim that failed. Not now if the lock is taken: the next pass fails on it again.
pub(super) async fn suspect(shared: &Shared, id: Uuid, cause: &db::Error) -> Result<(), db::Error> {
    let mut tx = shared.pool.begin(Begin::Durable).await?;
    let work = async {
        if !sql::try_drain_lock(tx.conn()).await? {
            return Ok(None);
        }
        let reason = format!("the database cannot hand it over: {cause}");
        let parked = sql::park_unclaimable(tx.conn(), id, &reason).await?;
        if let Some(key) = parked.as_ref().and_then(|row| row.key.clone()) {
            sql::promote(tx.conn(), &[key], super::pass::PROMOTE_PER_KEY, shared.options.blocks()).await?;
        }
        Ok(parked)
    }
    .await;
    let parked = tx.finish(work).await?;
    announce(shared, Cause::Unclaimable, parked.as_slice());
    Ok(())
}
