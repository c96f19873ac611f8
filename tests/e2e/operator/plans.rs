//! A page costs a page, and the verbs reach their rows by their indexes, whatever the planner knew when it planned them.

use holdfast_server::{outbox, tickets};
use holdfast_tests::{
    database::Database,
    logs::Logs,
    plans::{buffers, explain, pool},
};

use super::{BACKING_OFF, PARKED, put_many};

const PAGE: &str = "(NULL, NULL, NULL, NULL, 100, 5000, true, true)";
const FILTERED: &str = "(NULL, 'order.none', NULL, ARRAY['behind'], 100, 5000, true, true)";

#[tokio::test]
async fn a_page_of_what_is_not_out_costs_the_same_among_10000_and_among_40000_rows() {
    Logs::capture();
    let (mut pages, mut filtered) = (Vec::new(), Vec::new());
    for rows in [10_000, 40_000] {
        let database = Database::service().await;
        put_many(&database, "order.many", rows / 2, &BACKING_OFF).await;
        put_many(&database, "order.many", rows / 2, &[]).await;
        database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        let pool = pool(&database);
        let plan = explain(&pool, outbox::pending::QUERIES, "page", PAGE).await;
        assert!(
            plan.contains("event_outbox_unpublished") && !plan.contains("Seq Scan on event_outbox"),
            "{plan}"
        );
        pages.push(buffers(&plan));
        filtered.push(buffers(&explain(&pool, outbox::pending::QUERIES, "page", FILTERED).await));
    }
    assert!(pages[1] < pages[0] * 3 / 2, "buffers touched: {pages:?}");
    assert!(filtered[1] < filtered[0] * 3 / 2, "buffers touched with a filter: {filtered:?}");
}

#[tokio::test]
async fn no_verb_reads_the_outbox_whole_even_if_it_was_planned_while_that_was_empty() {
    Logs::capture();
    let database = Database::service().await;
    let pool = pool(&database);
    let ids = "ARRAY[gen_random_uuid(), gen_random_uuid()]";
    for filled in [false, true] {
        if filled {
            put_many(&database, "order.many", 5_000, &BACKING_OFF).await;
            put_many(&database, "order.many", 5_000, &PARKED).await;
            database.run("VACUUM ANALYZE holdfast.event_outbox").await;
        }
        for (queries, name, arguments, index) in [
            (outbox::pending::QUERIES, "page", PAGE.to_owned(), "event_outbox_unpublished"),
            (outbox::pending::QUERIES, "retry", format!("({ids})"), "event_outbox_pkey"),
            (outbox::pending::QUERIES, "left", format!("({ids}, true, true)"), "event_outbox_line"),
            (outbox::parked::QUERIES, "find", "(NULL, 'x', NULL, 5000)".to_owned(), "event_outbox_parked"),
            (outbox::parked::QUERIES, "unpark", format!("({ids})"), "event_outbox_pkey"),
            (outbox::parked::QUERIES, "discard", format!("({ids}, 1)"), "event_outbox_pkey"),
            (outbox::unresolved::QUERIES, "page", "(NULL, 101)".to_owned(), "event_outbox_unresolved"),
        ] {
            let plan = explain(&pool, queries, name, &arguments).await;
            assert!(!plan.contains("Seq Scan on event_outbox"), "{name}: {plan}");
            assert!(plan.contains(index), "{name} without {index}: {plan}");
        }
        let plan = explain(&pool, tickets::QUERIES, "holders", "(ARRAY[1, -7]::bigint[])").await;
        assert!(plan.contains("pg_lock_status"), "{plan}");
    }
}
