//! One cycle an interval, one replica at a time, at most so many rows: whatever the number of replicas, restarts and steps of the
//! clock (invariant 9).

use holdfast_server::retention::Report;
use holdfast_tests::{database::Database, logs::Logs, reconcile::reconcile};

use super::{
    KEPT, MOST, count, done, grow_due, outlive_the_lease, put_published, replica, replica_and_pool, rows,
};

const RESTING: Report = Report::NotNow { running: false };
const RUNNING: Report = Report::NotNow { running: true };

async fn generation(database: &Database) -> i64 {
    database.one("SELECT generation FROM holdfast.retention_cycle").await
}

#[tokio::test]
async fn of_many_replicas_that_look_at_once_one_runs_the_cycle_and_a_restart_runs_none() {
    Logs::capture();
    let database = Database::service().await;
    let replicas: Vec<_> = (0..8).map(|_| replica(&database, KEPT, MOST).0).collect();

    for round in 1..=10 {
        put_published(&database, 3, "31 days").await;
        let looks = futures::future::join_all(replicas.iter().map(|replica| replica.run_once())).await;
        let cycles = looks.iter().filter(|look| matches!(look, Ok(Report::Done(_)))).count();
        assert_eq!(cycles, 1, "{looks:?}");
        assert!(looks.iter().all(Result::is_ok), "{looks:?}");

        // Nobody remembers anything of its own.
        put_published(&database, 2, "31 days").await;
        let (restarted, _) = replica(&database, KEPT, MOST);
        assert_eq!(restarted.run_once().await.unwrap(), RESTING);
        assert_eq!(generation(&database).await, round);
        assert_eq!(count(&database, "event_outbox").await, 2);
        grow_due(&database).await;
    }

    assert_eq!(reconcile(&database, 50).await.gone["pruned"], 48);
}

#[tokio::test]
async fn a_cycle_is_due_after_the_interval_and_its_jitter_and_never_before() {
    Logs::capture();
    let database = Database::service().await;
    let (retention, _) = replica(&database, KEPT, MOST);
    done(&retention.run_once().await.unwrap());
    let jitter: f64 = database.one("SELECT jitter FROM holdfast.retention_cycle").await;
    assert!((0.0..0.1).contains(&jitter), "{jitter}");

    for (minutes, jitter, due) in [(59, 0.0, false), (61, 0.0, true), (65, 0.1, false), (67, 0.1, true)] {
        database
            .run(&format!(
                "UPDATE holdfast.retention_cycle
                 SET started_at = clock_timestamp() - interval '{minutes} minutes', jitter = {jitter}"
            ))
            .await;
        let report = retention.run_once().await.unwrap();
        assert_eq!(matches!(report, Report::Done(_)), due, "{minutes} minutes, {jitter}: {report:?}");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_makes_no_cycle_more_and_does_not_end_them_for_ever() {
    Logs::capture();
    let database = Database::service().await;
    let (retention, _) = replica(&database, KEPT, MOST);
    done(&retention.run_once().await.unwrap());

    // Set back by half an hour: the last one began in half an hour's time.
    database
        .run("UPDATE holdfast.retention_cycle SET started_at = clock_timestamp() + interval '30 minutes'")
        .await;
    assert_eq!(retention.run_once().await.unwrap(), RESTING);
    // Set back by a year.
    database
        .run("UPDATE holdfast.retention_cycle SET started_at = clock_timestamp() + interval '1 year'")
        .await;
    done(&retention.run_once().await.unwrap());
    assert_eq!(retention.run_once().await.unwrap(), RESTING);

    // The same in the middle of a cycle.
    database
        .run("UPDATE holdfast.retention_cycle SET leased_until = clock_timestamp() + interval '50 seconds'")
        .await;
    assert_eq!(retention.run_once().await.unwrap(), RUNNING);
    database
        .run("UPDATE holdfast.retention_cycle SET leased_until = clock_timestamp() + interval '1 year'")
        .await;
    done(&retention.run_once().await.unwrap());
}

#[tokio::test]
async fn a_cycle_stops_at_its_cap_says_so_and_the_next_one_goes_on() {
    let logs = Logs::capture();
    let database = Database::service().await;
    put_published(&database, 3_700, "31 days").await;
    database
        .run(
            "INSERT INTO holdfast.hold_outcome
             SELECT 'op-' || n, 1, 'released', now() - interval '31 days' FROM generate_series(1, 1200) AS n",
        )
        .await;
    let (retention, metrics) = replica(&database, KEPT, 2_500);

    let gauge = |name: &str| {
        let text = metrics.text().unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap().to_owned();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        let report = retention.run_once().await.unwrap();
        let (events, decisions) = rows(&report);
        assert_eq!(done(&report).capped, gauge("holdfast_retention_capped") == 1.0);
        seen.push((events, decisions, done(&report).capped));
        assert_eq!(retention.run_once().await.unwrap(), RESTING, "the rest waits for the next cycle");
        grow_due(&database).await;
    }

    // In turns: neither waits behind the other's.
    assert_eq!(seen, [(1_500, 1_000, true), (2_200, 200, false), (0, 0, false)]);
    assert!(gauge("holdfast_retention_last_success_timestamp_seconds") > 1.7e9);
    let lines = logs.with("pruned what was past its retention");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].text.contains("capped=true") && lines[1].text.contains("capped=false"), "{lines:?}");
    assert_eq!(reconcile(&database, 3_700).await.gone["pruned"], 3_700);
}

#[tokio::test]
async fn a_replica_that_was_away_for_longer_than_its_lease_prunes_nothing_any_more() {
    Logs::capture();
    let database = Database::service().await;
    put_published(&database, 1_700, "31 days").await;
    let gate = super::killed::gate(&database).await;
    gate.close().await;
    let ((slow, slow_metrics), (quick, _)) = (replica(&database, KEPT, MOST), replica(&database, KEPT, MOST));
    let slow = tokio::spawn(async move { slow.run_once().await });
    gate.somebody_waits().await;
    assert_eq!(quick.run_once().await.unwrap(), RUNNING, "one at a time");

    outlive_the_lease(&database).await;
    let quick = tokio::spawn(async move { quick.run_once().await });
    super::killed::wait_for_generation(&database, 2).await;
    gate.open().await;

    assert_eq!(slow.await.unwrap().unwrap(), Report::Lost);
    // What the slow one had locked was skipped, and was given back by its rollback.
    let (first, _) = rows(&quick.await.unwrap().unwrap());
    assert!(!slow_metrics.text().unwrap().contains("holdfast_retention_pruned_total{"));
    grow_due(&database).await;
    let (second, _) = rows(&replica(&database, KEPT, MOST).0.run_once().await.unwrap());
    assert_eq!(first + second, 1_700);
    assert_eq!(reconcile(&database, 1_700).await.gone["pruned"], 1_700);
}

#[tokio::test]
async fn a_gate_that_shuts_in_the_middle_of_a_cycle_stops_it_after_the_batch_in_hand() {
    Logs::capture();
    let database = Database::service().await;
    put_published(&database, 2_500, "31 days").await;
    let door = super::killed::gate(&database).await;
    door.close().await;
    let (retention, pool, _) = replica_and_pool(&database, KEPT, MOST);
    let cycle = tokio::spawn(async move { (retention.run_once().await, retention) });
    door.somebody_waits().await;

    pool.gate().shut("index x is missing");
    door.open().await;

    let (report, retention) = cycle.await.unwrap();
    assert_eq!(report.unwrap(), RUNNING);
    assert_eq!(count(&database, "event_outbox").await, 1_500, "one batch");
    outlive_the_lease(&database).await;
    assert_eq!(retention.run_once().await.unwrap(), RUNNING);
    assert_eq!(count(&database, "event_outbox").await, 1_500);
    pool.gate().open();
    assert_eq!(rows(&retention.run_once().await.unwrap()).0, 1_500, "and is gone on with");
    assert_eq!(reconcile(&database, 2_500).await.gone["pruned"], 2_500);
}
