//! The inbox reaches its rows by their indexes, whatever the planner knew when it planned, and what is measured and pruned costs what is
//! there to be measured and pruned.

use holdfast_server::inbox;
use holdfast_tests::{
    database::Database,
    logs::Logs,
    plans::{buffers, explain, pool},
};

/// A past: processed messages, few that are begun, and few that wait to be dead-lettered.
async fn fill(database: &Database, processed: i64) {
    database
        .run(&format!(
            "INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, event_type, generation, processed_at)
                 SELECT holdfast.uuid_v7(), 'orders.payments', 'order.placed', 1, now() FROM generate_series(1, {processed}) AS n;
             INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, event_type, generation, ticket)
                 SELECT holdfast.uuid_v7(), 'orders.payments', 'order.placed', 1, n FROM generate_series(1, 50) AS n;
             INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, event_type, generation, lease_token, lease_until)
                 SELECT holdfast.uuid_v7(), 'orders.payments', 'order.placed', 1, holdfast.uuid_v7(), now() + interval '1 hour'
                 FROM generate_series(1, 50) AS n;
             INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, event_type, generation, ended, cause)
                 SELECT holdfast.uuid_v7(), 'orders.payments', 'order.placed', 1, 'failed', 'asked' FROM generate_series(1, 50) AS n"
        ))
        .await;
    database.run("VACUUM ANALYZE holdfast.event_inbox").await;
}

#[tokio::test]
async fn no_statement_reads_the_inbox_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let pool = pool(&database);
    let (id, key) = ("gen_random_uuid()", "event_inbox_pkey");
    for filled in [false, true] {
        if filled {
            fill(&database, 10_000).await;
        }
        let write = format!(
            "({id}, 'q', now(), NULL, NULL, NULL, NULL, 1, NULL, 0, 0, NULL, NULL, 0, NULL, true, 1, NULL, NULL, 2, NULL, 0, 0,
              NULL, false, false, 0, NULL, false, NULL)"
        );
        for (name, arguments, index) in [
            ("look", format!("({id}, 'q')"), key),
            ("look_all", format!("({id}, ARRAY['q', 'r'])"), key),
            ("write", write, key),
            ("surfaced", format!("({id}, 'q', 1780000000)"), key),
            ("keep", "(ARRAY[1, 2]::bigint[], 1000)".to_owned(), "event_inbox_undecided"),
            ("lose", "(ARRAY[1, 2]::bigint[], 1000, 3)".to_owned(), "event_inbox_undecided"),
            ("naming", "(ARRAY[1, 2]::bigint[])".to_owned(), "event_inbox_undecided"),
            ("undecided", "(NULL, 256)".to_owned(), "event_inbox_undecided"),
            ("depth", "(10000)".to_owned(), "event_inbox_leased"),
            ("depth", "(10000)".to_owned(), "event_inbox_over"),
            ("prune", "(2678400, 1000)".to_owned(), "event_inbox_received"),
        ] {
            let plan = explain(&pool, inbox::QUERIES, name, &arguments).await;
            assert!(!plan.contains("Seq Scan on event_inbox"), "{name}, filled {filled}: {plan}");
            assert!(plan.contains(index), "{name} without {index}, filled {filled}: {plan}");
        }
    }
}

#[tokio::test]
async fn a_look_a_measure_and_a_prune_cost_the_same_among_5000_and_among_50000_processed_messages() {
    Logs::capture();
    let mut costs = Vec::new();
    for processed in [5_000, 50_000] {
        let database = Database::service().await;
        fill(&database, processed).await;
        let pool = pool(&database);
        let id = database.one::<String>("SELECT min(envelope_id::text) FROM holdfast.event_inbox").await;
        let look = format!("('{id}', 'orders.payments')");
        let mut cost = Vec::new();
        for (name, arguments) in [
            ("look", look.as_str()),
            ("depth", "(10000)"),
            ("undecided", "(NULL, 256)"),
            ("prune", "(2678400, 1000)"),
        ] {
            cost.push(buffers(&explain(&pool, inbox::QUERIES, name, arguments).await));
        }
        costs.push(cost);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        // A B-tree may have a level more.
        assert!(*many <= few * 3 / 2 + 4, "buffers touched by look, depth, undecided and prune: {costs:?}");
    }
}
