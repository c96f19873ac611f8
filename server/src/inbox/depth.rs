//! How much is under way in an inbox, for metrics. Each replica measures for itself, as the outbox's depth; counts end at
//! [`MOST`]. Does not complain: the resolver does, about the same database.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{LIMIT, sql};
use crate::db::{self, Pool};
use crate::metrics::Inbox;

/// Counted so far and no further: more than a fleet's consumers have in hand.
const MOST: i64 = 10_000;
/// Jittered by a tenth.
const INTERVAL: Duration = Duration::from_secs(15);

/// Measures one service's inbox.
pub struct Depth {
    pool: Pool,
    metrics: Inbox,
}

impl Depth {
    /// The worker.
    pub fn new(pool: Pool, metrics: Inbox) -> Self {
        Self { pool, metrics }
    }

    /// Works until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut wait = INTERVAL.mul_f64(rand::random_range(0.0..0.2));
        loop {
            let measured = async {
                tokio::time::sleep(wait).await;
                db::within(LIMIT, async {
                    let mut read = self.pool.read().await?;
                    let measured = sql::depth(read.conn(), MOST).await;
                    read.finish(measured).await
                })
                .await
            };
            let measured = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                measured = measured => measured,
            };
            match measured {
                Ok((begun, waiting)) => self.metrics.under_way(begun, waiting),
                Err(error) => {
                    debug!(service.name = self.metrics.service(), %error, "the inbox could not be measured");
                }
            }
            wait = INTERVAL.mul_f64(rand::random_range(0.9..1.1));
        }
    }
}
