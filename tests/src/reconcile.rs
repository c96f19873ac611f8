//! Invariant 2 (design, section 15): each row has one state, and nothing that was staged is unaccounted for.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Connection as _, FromRow, PgConnection};

use crate::{database::Database, wait};

/// Where the rows of one service's outbox are. A row counts in the first state that holds, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, FromRow)]
pub struct Census {
    /// Its transaction is not decided.
    pub unresolved: i64,
    /// Kept back for an operation.
    pub held: i64,
    /// Set aside.
    pub parked: i64,
    /// Claimed by a publisher.
    pub in_flight: i64,
    /// Deliverable, not delivered.
    pub pending: i64,
    /// Delivered.
    pub published: i64,
    /// All rows.
    pub rows: i64,
    /// Rows that left without having been published, or after it (pruned), by reason.
    #[sqlx(skip)]
    pub gone: BTreeMap<String, i64>,
}

impl Census {
    /// Counts, rows and tally in one snapshot.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn take(database: &Database) -> Self {
        let mut connection = database.connect().await;
        let census = Self::over(&mut connection).await;
        let _ = connection.close().await;
        census
    }

    /// The same over a connection that is there.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn over(connection: &mut PgConnection) -> Self {
        let mut tx =
            connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.expect("begin");
        let mut census: Self = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE state = 1) AS unresolved, count(*) FILTER (WHERE state = 2) AS held,
                    count(*) FILTER (WHERE state = 3) AS parked, count(*) FILTER (WHERE state = 4) AS in_flight,
                    count(*) FILTER (WHERE state = 5) AS pending, count(*) FILTER (WHERE state = 6) AS published,
                    count(*) AS rows
             FROM (SELECT CASE WHEN ticket IS NOT NULL THEN 1
                               WHEN hold_operation_id IS NOT NULL THEN 2
                               WHEN parked_at IS NOT NULL THEN 3
                               WHEN published_at IS NOT NULL THEN 6
                               WHEN claimed_at IS NOT NULL THEN 4
                               ELSE 5 END AS state
                   FROM holdfast.event_outbox) AS rows",
        )
        .fetch_one(&mut *tx)
        .await
        .expect("count the outbox");
        let gone: Vec<(String, i64)> =
            sqlx::query_as("SELECT reason, sum(rows)::bigint FROM holdfast.outbox_tally GROUP BY reason")
                .fetch_all(&mut *tx)
                .await
                .expect("count the tally");
        census.gone = gone.into_iter().collect();
        tx.commit().await.expect("commit");
        census
    }

    /// Everything that was ever staged, as far as it is accounted for.
    pub fn accounted(&self) -> i64 {
        let here = [self.unresolved, self.held, self.parked, self.in_flight, self.pending, self.published];
        here.iter().sum::<i64>() + self.gone.values().sum::<i64>()
    }

    /// Rows on which somebody still has to act without an operator: undecided, in flight or pending.
    pub fn moving(&self) -> i64 {
        self.unresolved + self.in_flight + self.pending
    }
}

/// Asserts that exactly `staged` rows are accounted for, and returns where they are. Holds at every instant.
///
/// # Panics
/// When it does not.
pub async fn reconcile(database: &Database, staged: usize) -> Census {
    let census = Census::take(database).await;
    assert_eq!(census.accounted(), i64::try_from(staged).unwrap(), "rows accounted for: {census:?}");
    assert_eq!(
        census.rows + census.gone.values().sum::<i64>(),
        census.accounted(),
        "one state a row: {census:?}"
    );
    census
}

/// Waits until nothing moves any more, and then reconciles.
pub async fn settled(database: &Database, staged: usize, within: Duration) -> Census {
    wait::until("the outbox to settle", within, || async {
        let census = Census::take(database).await;
        if census.moving() == 0 { Ok(()) } else { Err(census) }
    })
    .await;
    reconcile(database, staged).await
}
