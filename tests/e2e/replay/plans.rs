//! What a slice costs does not depend on how much lies in the outbox or in the lane, whatever the planner knew.

use holdfast_server::{jobs, outbox::replay};
use holdfast_tests::{
    database::Database,
    logs::Logs,
    plans::{buffers, explain, explain_first, pool},
};

use super::put_published;

const JOB: &str = "'0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a41'";

/// A running replay of everything, its lane filled.
async fn fill(database: &Database, events: i32) {
    put_published(database, events, "order.placed").await;
    lane(database).await;
    database
        .run("VACUUM ANALYZE holdfast.event_outbox, holdfast.replay_row, holdfast.replay, holdfast.job")
        .await;
}

/// The replay and its lane.
async fn lane(database: &Database) {
    database
        .run(&format!(
            "INSERT INTO holdfast.job (id, kind, state, requested_by, max_rate, max_failures, started_at)
                 VALUES ({JOB}, 'replay', 'running', 'olga', 1000, 0.1, now());
             INSERT INTO holdfast.replay (job_id, window_from, window_to, upper_seq, published_before, copied_to)
                 VALUES ({JOB}, now() - interval '1 hour', now() + interval '1 hour', 1000000, now(), NULL);
             INSERT INTO holdfast.replay_row (job_id, seq, event_id) SELECT {JOB}, seq, id FROM holdfast.event_outbox"
        ))
        .await;
    database
        .run("VACUUM ANALYZE holdfast.event_outbox, holdfast.replay_row, holdfast.replay, holdfast.job")
        .await;
}

#[tokio::test]
async fn no_statement_of_a_replay_reads_a_table_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let pool = pool(&database);
    let window = "now() - interval '1 hour', now(), NULL, NULL, now(), 1000000";
    for filled in [false, true] {
        if filled {
            fill(&database, 10_000).await;
        }
        for (queries, name, arguments, index) in [
            (replay::QUERIES, "count", format!("({window})"), "event_outbox_published"),
            (replay::QUERIES, "sample", format!("({window}, 10)"), "event_outbox_published"),
            (replay::QUERIES, "copy", format!("({JOB}, 1000)"), "event_outbox_published"),
            (replay::QUERIES, "next", format!("({JOB}, 100, 2592000, 33554432)"), "replay_row"),
            (replay::QUERIES, "next", format!("({JOB}, 100, 2592000, 33554432)"), "event_outbox_pkey"),
            (replay::QUERIES, "settled", format!("({JOB}, ARRAY[1, 2]::bigint[], 2)"), "replay_row_pkey"),
            (replay::QUERIES, "failed", format!("({JOB}, ARRAY[1]::bigint[], ARRAY['x'])"), "replay_row"),
            (replay::QUERIES, "sent", format!("({JOB}, ARRAY[gen_random_uuid()])"), "event_outbox_pkey"),
            (replay::QUERIES, "clear", format!("({JOB}, 100)"), "replay_row"),
            (replay::QUERIES, "failures", format!("({JOB}, 0, 100)"), "replay_row"),
            (jobs::QUERIES, "claim", "('me', 60, 1000, 'replay')".to_owned(), "job_open"),
            (jobs::QUERIES, "open", String::new(), "job_open"),
        ] {
            let plan = explain(&pool, queries, name, &arguments).await;
            for table in ["event_outbox", "replay_row"] {
                assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name}, filled {filled}: {plan}");
            }
            assert!(plan.contains(index), "{name} without {index}, filled {filled}: {plan}");
        }
    }
}

#[tokio::test]
async fn a_slice_costs_the_same_among_5000_and_among_50000_events() {
    Logs::capture();
    let mut costs = Vec::new();
    for events in [5_000, 50_000] {
        let database = Database::service().await;
        fill(&database, events).await;
        let pool = pool(&database);
        let mut cost = Vec::new();
        let ids = database.one::<String>("SELECT string_agg(quote_literal(id), ',') FROM (SELECT id FROM holdfast.event_outbox LIMIT 10) AS ten").await;
        for (name, arguments) in [
            ("next", format!("({JOB}, 10, 2592000, 33554432)")),
            ("settled", format!("({JOB}, ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]::bigint[], 10)")),
            ("failed", format!("({JOB}, ARRAY[11, 12]::bigint[], ARRAY['x', 'y'])")),
            ("sent", format!("({JOB}, ARRAY[{ids}]::uuid[])")),
            ("clear", format!("({JOB}, 10)")),
        ] {
            cost.push(buffers(&explain(&pool, replay::QUERIES, name, &arguments).await));
        }
        costs.push(cost);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        // B-trees may have a level more: one block a row that is looked up.
        assert!(*many <= few * 3 / 2 + 8, "buffers touched by next, settled, failed, sent, clear: {costs:?}");
    }
}

/// A replay begins the moment its set is copied, long before anybody has looked at the new rows.
#[tokio::test]
async fn the_first_slices_after_the_copying_do_not_read_the_rest_of_the_lane() {
    Logs::capture();
    let mut costs = Vec::new();
    for events in [2_000, 40_000] {
        let database = Database::service().await;
        database.run("ALTER TABLE holdfast.replay_row SET (autovacuum_enabled = off)").await;
        put_published(&database, events, "order.placed").await;
        database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        lane(&database).await;
        let pool = pool(&database);
        let mut cost = Vec::new();
        for slice in [10, 1_000] {
            let arguments = format!("({JOB}, {slice}, 2592000, 33554432)");
            cost.push(buffers(&explain_first(&pool, replay::QUERIES, "next", &arguments).await));
        }
        costs.push(cost);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        assert!(*many <= few * 3 / 2 + 8, "buffers touched by slices of 10 and of 1,000: {costs:?}");
    }
}
