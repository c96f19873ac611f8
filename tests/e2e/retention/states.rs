//! Which rows go: published ones at rest, past their time; no others, however old they are.

use holdfast_server::{outbox, retention::Windows};
use holdfast_tests::{database::Database, logs::Logs, reconcile::reconcile};
use sqlx::Connection as _;

use super::{KEPT, MOST, count, put_published, replica, rows};

/// Every state of a row, and what makes it.
const STATES: [(&str, &str, &str); 11] = [
    ("unresolved", "ticket, resolved_at", "4711, NULL"),
    ("held", "hold_operation_id, hold_generation", "'op', 1"),
    ("parked", "parked_at, parked_reason, admitted_at", "now(), 'crashed', now()"),
    ("backing off", "next_attempt_at, admitted_at, attempts", "now() + interval '1 hour', now(), 3"),
    ("set aside", "admitted_at", "now()"),
    ("in flight", "claimed_at, claimed_by", "now(), 'somebody'"),
    ("pending", "attempts", "0"),
    ("published", "published_at", "'infinity'"),
    // Stamped without the drain's lock: its followers were not looked at yet.
    ("published front", "published_at, ordering_key, is_head", "'infinity', 'k', true"),
    // No statement of ours makes these; the precedence of states does not let them be called published.
    ("published and unresolved", "published_at, ticket, resolved_at", "'infinity', 4711, NULL"),
    ("published and held", "published_at, hold_operation_id, hold_generation", "'infinity', 'op', 1"),
];

const AGES: [(&str, &str); 4] = [
    ("young", "now()"),
    ("a minute short", "now() - interval '30 days' + interval '1 minute'"),
    ("a second past", "now() - interval '30 days' - interval '1 second'"),
    ("ancient", "'-infinity'"),
];

async fn every_state_at_each_age(database: &Database) -> usize {
    for (state, columns, values) in STATES {
        for (age, created_at) in AGES {
            database
                .run(&format!(
                    "INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, {columns})
                     VALUES ('{state}, {age}', '{{}}', {created_at}, {values})"
                ))
                .await;
        }
    }
    STATES.len() * AGES.len()
}

async fn left(database: &Database) -> Vec<String> {
    let mut connection = database.connect().await;
    let left = sqlx::query_scalar("SELECT event_type FROM holdfast.event_outbox ORDER BY seq")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    left
}

#[tokio::test]
async fn of_each_state_at_each_age_only_old_published_rows_are_pruned_and_each_is_counted() {
    Logs::capture();
    let database = Database::service().await;
    let staged = every_state_at_each_age(&database).await;
    let mut wanted = left(&database).await;
    wanted.retain(|row| row != "published, a second past" && row != "published, ancient");

    let (retention, _) = replica(&database, KEPT, MOST);
    assert_eq!(rows(&retention.run_once().await.unwrap()), (2, 0));

    assert_eq!(left(&database).await, wanted);
    assert_eq!(reconcile(&database, staged).await.gone["pruned"], 2);
}

#[tokio::test]
async fn a_retention_of_zero_keeps_everything_for_ever() {
    Logs::capture();
    let database = Database::service().await;
    let staged = every_state_at_each_age(&database).await;
    database
        .run("INSERT INTO holdfast.hold_outcome VALUES ('old', 1, 'dropped', now() - interval '100 years')")
        .await;

    let (retention, _) = replica(
        &database,
        Windows { outbox: std::time::Duration::ZERO, inbox: std::time::Duration::ZERO },
        MOST,
    );
    assert_eq!(rows(&retention.run_once().await.unwrap()), (0, 0));

    assert_eq!(left(&database).await.len(), staged);
    assert_eq!(count(&database, "hold_outcome").await, 1);
}

#[tokio::test]
async fn a_batch_takes_no_more_than_it_was_asked_for_whatever_the_plan_and_the_oldest_first() {
    Logs::capture();
    let database = Database::service().await;
    put_published(&database, 50, "40 days").await;
    put_published(&database, 50, "50 days").await;
    let sql = outbox::QUERIES.iter().find(|(name, _)| *name == "prune").unwrap().1;
    let mut connection = database.connect().await;

    let mut gone = 0;
    for switch in
        ["enable_hashjoin", "enable_mergejoin", "enable_nestloop", "enable_indexscan", "enable_seqscan"]
    {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!("SET LOCAL {switch} = off")))
            .execute(&mut *tx)
            .await
            .unwrap();
        let pruned: i64 = sqlx::query_scalar(sql)
            .bind(30.0 * 86_400.0)
            .bind(10_i64)
            .bind(0)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(pruned, 10, "{switch}");
        gone += pruned;
    }

    connection.close().await.unwrap();
    let older: i64 = database
        .one("SELECT count(*) FROM holdfast.event_outbox WHERE created_at < now() - interval '45 days'")
        .await;
    assert_eq!((gone, older), (50, 0));
    assert_eq!(reconcile(&database, 100).await.gone["pruned"], 50);
}
