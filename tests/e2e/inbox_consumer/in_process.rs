//! `inbox::handle_in_tx` by itself: its answers by the row that is there, its rights, and its neighbours.

use holdfast_client::inbox::{Delivery, HandleError, Handled, handle_in_tx};
use holdfast_tests::{database::Database, scene::Scene};

use super::*;

fn delivery(id: Uuid) -> Delivery {
    Delivery::new(QUEUE, id).source_service("shop").event_type("order.placed")
}

async fn fine(pool: &PgPool, delivery: &Delivery) -> &'static str {
    word(&handle_in_tx(pool, delivery, async |tx| effect(tx, delivery.envelope_id()).await).await.unwrap())
}

async fn failing(pool: &PgPool, delivery: &Delivery) -> Handled<()> {
    let handler = async |tx: &mut PgConnection| {
        effect(tx, delivery.envelope_id()).await?;
        Err(HandlerError::retry("a\0b"))
    };
    handle_in_tx(pool, delivery, handler).await.unwrap()
}

#[tokio::test]
async fn one_connection_is_enough_and_the_second_delivery_is_a_duplicate() {
    let database = Database::service().await;
    let pool = pool(&database, 1).await;
    let id = Uuid::now_v7();

    assert_eq!(fine(&pool, &delivery(id)).await, "done");
    assert_eq!(fine(&pool, &delivery(id)).await, "duplicate");
    // Another queue is another consumer.
    assert_eq!(fine(&pool, &Delivery::new("orders.audit", id)).await, "done");

    assert_eq!(effects(&database, &id.to_string()).await, 2);
    let wanted =
        "generation::text || failures || lost_starts || (processed_at IS NOT NULL) || (lease_until IS NULL)";
    let wanted = format!("{wanted} || source_service");
    assert_eq!(
        database
            .one::<String>(&format!(
                "SELECT {wanted} FROM holdfast.event_inbox WHERE consumer_queue = '{QUEUE}'"
            ))
            .await,
        "100truetrueshop"
    );
}

#[tokio::test]
async fn errors_are_counted_after_the_rollback_and_the_fifth_is_the_last() {
    let database = Database::service().await;
    let pool = pool(&database, 1).await;
    let id = Uuid::now_v7();
    for _ in 0..4 {
        assert_eq!(word(&failing(&pool, &delivery(id)).await), "retry");
    }

    let Handled::DeadLetter(letter, Some(error)) = failing(&pool, &delivery(id)).await else {
        unreachable!("the fifth error ends the series")
    };

    let id_text = id.to_string();
    let epoch = consumption(&database, &id_text, "floor(extract(epoch FROM received_at))").await;
    assert_eq!(letter.token, format!("dlxcap:{id}:{QUEUE}:{epoch}"));
    assert_eq!((error.to_string(), letter.already_surfaced), ("a\0b".to_owned(), false));
    assert_eq!(consumption(&database, &id_text, "last_error || cause || failures").await, "a bfailures5");
    assert_eq!(effects(&database, &id_text).await, 0);
    // Dead until a newer replay brings it.
    assert_eq!(fine(&pool, &delivery(id)).await, "dead_letter");
    assert_eq!(fine(&pool, &delivery(id).replay_id(Uuid::now_v7())).await, "done");
    assert_eq!(consumption(&database, &id_text, "cycle || ',' || failures").await, "1,0");
}

#[tokio::test]
async fn starts_that_ended_in_nothing_are_counted_when_their_lease_has_run_out_and_three_are_too_many() {
    let database = Database::service().await;
    let pool = pool(&database, 2).await;
    let id = Uuid::now_v7();
    for lost in 0..3 {
        // Dropped in the middle, as if it had been killed.
        let entered = Semaphore::new(0);
        let delivery = delivery(id);
        let handler = async |_: &mut PgConnection| {
            entered.add_permits(1);
            std::future::pending::<Result<(), HandlerError>>().await
        };
        tokio::select! {
            handled = handle_in_tx(&pool, &delivery, handler) => {
                unreachable!("{handled:?}");
            }
            _ = entered.acquire() => {}
        }
        assert_eq!(consumption(&database, &id.to_string(), "lost_starts").await, lost.to_string());
        wait::until_equal("somebody else's hands", LONG, true, || async {
            // Locked until the rollback, then leased.
            let row = "SELECT EXISTS (SELECT FROM holdfast.event_inbox FOR UPDATE SKIP LOCKED)";
            database.one::<bool>(row).await
        })
        .await;
        assert_eq!(fine(&pool, &delivery).await, "in_progress");
        database.run("UPDATE holdfast.event_inbox SET lease_until = now()").await;
    }

    assert_eq!(fine(&pool, &delivery(id)).await, "dead_letter");

    let id = id.to_string();
    assert_eq!(consumption(&database, &id, "cause || lost_starts || generation").await, "lost_starts33");
    assert_eq!(effects(&database, &id).await, 0);
}

#[tokio::test]
async fn while_a_handler_runs_nobody_else_may_not_even_after_its_lease_nor_through_the_server() {
    let scene = Scene::start().await;
    let pool = pool(&scene.database, 4).await;
    let id = Uuid::now_v7();
    let (entered, gate) = (Semaphore::new(0), Semaphore::new(0));
    let first = delivery(id);
    let handler = async |tx: &mut PgConnection| {
        effect(tx, id).await?;
        entered.add_permits(1);
        gate.acquire().await.unwrap().forget();
        Ok::<_, HandlerError>(())
    };
    let others = async {
        entered.acquire().await.unwrap().forget();
        assert_eq!(fine(&pool, &delivery(id)).await, "in_progress");
        let server = inbox(scene.server.address(), SERVICE);
        let lease = holdfast_client::inbox::Lease::new(Duration::from_secs(60));
        let begun = server.begin_with_lease(&lease, &delivery(id)).await.unwrap();
        assert!(matches!(begun, holdfast_client::inbox::Begun::InProgress(_)), "{begun:?}");
        gate.add_permits(1);
    };

    let (handled, ()) = tokio::join!(handle_in_tx(&pool, &first, handler), others);

    assert_eq!(word(&handled.unwrap()), "done");
    assert_eq!(fine(&pool, &delivery(id)).await, "duplicate");
    let server = inbox(scene.server.address(), SERVICE);
    let lease = holdfast_client::inbox::Lease::new(Duration::from_secs(60));
    let begun = server.begin_with_lease(&lease, &delivery(id)).await.unwrap();
    assert!(matches!(begun, holdfast_client::inbox::Begun::Duplicate(_)), "{begun:?}");
    scene.end(0).await;
}

#[tokio::test]
async fn fifty_deliveries_at_once_have_one_effect() {
    let database = Database::service().await;
    let pool = pool(&database, 10).await;
    let id = Uuid::now_v7();
    let delivery = delivery(id);

    let handled = futures::future::join_all((0..50).map(|_| fine(&pool, &delivery))).await;

    assert_eq!(handled.iter().filter(|word| **word == "done").count(), 1, "{handled:?}");
    assert!(handled.iter().all(|word| ["done", "duplicate", "in_progress"].contains(word)), "{handled:?}");
    assert_eq!(effects(&database, &id.to_string()).await, 1);
}

#[tokio::test]
async fn asynchronous_defaults_of_the_role_do_not_reach_the_mark() {
    let database = Database::service().await;
    database.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name())).await;
    database
        .run(&format!(
            "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
            database.name()
        ))
        .await;
    let pool = pool(&database, 1).await;
    let delivery = delivery(Uuid::now_v7());

    let handled = handle_in_tx(&pool, &delivery, async |tx| {
        let sql = "SELECT current_setting('transaction_isolation')";
        Ok::<String, HandlerError>(sqlx::query_scalar(sql).fetch_one(tx).await?)
    });

    let Handled::Done(isolation) = handled.await.unwrap() else { unreachable!("it is new") };
    assert_eq!(isolation, "read committed");
}

/// A backlog is worked off faster than statistics come.
#[tokio::test]
async fn what_was_planned_while_the_inbox_was_small_does_not_read_it_whole_later() {
    let database = Database::service().await;
    database.run("ALTER TABLE holdfast.event_inbox SET (autovacuum_enabled = off)").await;
    let pool = pool(&database, 1).await;
    let ten = async || {
        for _ in 0..10 {
            let delivery = delivery(Uuid::now_v7());
            assert_eq!(fine(&pool, &delivery).await, "done");
            assert_eq!(fine(&pool, &delivery).await, "duplicate");
            assert_eq!(word(&failing(&pool, &self::delivery(Uuid::now_v7())).await), "retry");
        }
    };
    // From the sixth execution on a statement may be planned once for all.
    ten().await;
    database
        .run(
            "INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, generation, processed_at)
             SELECT gen_random_uuid(), 'orders.payments', 1, now() FROM generate_series(1, 20000)",
        )
        .await;

    ten().await;

    // What a session has counted is written at its end at the latest.
    pool.close().await;
    let counted = |what: &'static str| {
        let database = &database;
        async move {
            let view = "FROM pg_stat_user_tables WHERE relid = 'holdfast.event_inbox'::regclass";
            database.one::<i64>(&format!("SELECT {what} {view}")).await
        }
    };
    wait::until_equal("rows put in, by the statistics", LONG, 20_040, || counted("n_tup_ins")).await;
    let read = counted("seq_tup_read").await;
    assert!(read < 20_000, "rows read by sequential scans: {read}");
}

#[tokio::test]
async fn without_the_right_nothing_runs() {
    let database = Database::service().await;
    database.run("DROP TABLE holdfast.event_inbox").await;
    let pool = pool(&database, 1).await;
    let delivery = delivery(Uuid::now_v7());

    let handled = handle_in_tx(&pool, &delivery, async |_| -> Result<(), HandlerError> {
        unreachable!("it may not run")
    });

    assert!(matches!(handled.await, Err(HandleError::Database(_))));
}
