//! Callers that give up and answers that are lost: work that was taken on is finished, and no connection is poisoned
//! (pitfalls, "a cancelled pool.begin() poisons the connection"; design, section 3).

use std::time::Duration;

use holdfast_client::outbox::Ticket;
use holdfast_proto::v1::{EventState, Outcome, StageInTxRequest};
use holdfast_server::db::{self, Begin, Pool};
use holdfast_tests::{
    chaos::Proxy,
    client::event,
    database::Database,
    reconcile::{Census, reconcile},
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use rand::Rng as _;
use sqlx::Executor as _;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{gate::Gate, gone};

async fn is_there(database: &Database, id: &str) -> bool {
    database.one(&format!("SELECT EXISTS (SELECT FROM holdfast.event_outbox WHERE id = '{id}')")).await
}

/// No session of a server is inside a transaction.
async fn nobody_works(database: &Database) {
    wait::until_equal("server sessions in a transaction", LONG, 0, || async {
        database
            .one::<i64>(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'holdfast' AND state <> 'idle'",
            )
            .await
    })
    .await;
}

#[tokio::test]
async fn under_short_deadlines_every_ok_has_its_row_and_nothing_later_is_lost() {
    let scene = Scene::builder().with_database_proxy().start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.placed")]).await;
    // A group is one round trip, and who comes meanwhile waits for it.
    scene.database_proxy().delay(Duration::from_millis(12));
    let (mut ok, mut given_up) = (0, 0);
    for _ in 0..25 {
        let calls = (0..4).map(|_| {
            let mut raw = scene.client.raw.clone();
            async move {
                let event = event("order.placed");
                let id = event.id.clone();
                let events = vec![event];
                let mut request = tonic::Request::new(StageInTxRequest {
                    service: SERVICE.into(),
                    ticket,
                    events,
                    hold: None,
                });
                request.set_timeout(Duration::from_millis(rand::rng().random_range(20..=80)));
                (id, raw.stage_in_tx(request).await)
            }
        });
        for (id, answer) in futures::future::join_all(calls).await {
            match answer {
                Ok(_) => {
                    assert!(is_there(&scene.database, &id).await, "an OK without its row");
                    ok += 1;
                }
                Err(status) => {
                    let expected = matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded);
                    assert!(expected, "{status}");
                    given_up += 1;
                }
            }
        }
    }
    assert!(ok > 0 && given_up > 0, "deadlines on both sides of an answer: {ok} and {given_up}");

    scene.database_proxy().pass().await;
    // As many as the pool has connections, several times over: none of them was left inside a transaction.
    for _ in 0..20 {
        let later = event("order.placed");
        scene.client.stage(ticket, std::slice::from_ref(&later)).await;
        assert!(is_there(&scene.database, &later.id).await, "an OK whose transaction was never committed");
    }
    nobody_works(&scene.database).await;
    let staged = Census::take(&scene.database).await.accounted();
    assert!(staged >= 21 + ok, "{staged}");
    caller.commit().await;
    scene.end(usize::try_from(staged).unwrap()).await;
}

#[tokio::test]
async fn a_stage_whose_caller_is_gone_is_finished_and_follows_the_callers_transaction() {
    let scene = Scene::start().await;
    let gate = Gate::before_inserts(&scene.database).await;
    for commits in [false, true] {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        let event = event("order.placed");
        gate.close().await;
        let (client, sent) = (scene.client.clone(), event.clone());
        let call = tokio::spawn(async move { client.try_stage(ticket, &[sent]).await });
        gate.somebody_waits().await;

        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        gate.open().await;

        scene.client.wait_for_state(&event.id, EventState::Unresolved).await;
        if commits {
            caller.commit().await;
            scene.client.wait_for_state(&event.id, EventState::Published).await;
        } else {
            caller.rollback().await;
            gone(&scene.client, &event.id).await;
        }
    }
    scene.end(2).await;
}

#[tokio::test]
async fn after_a_lost_reply_to_the_commit_the_caller_is_told_that_the_rows_may_be_there() {
    let scene = Scene::builder().with_database_proxy().start().await;
    scene.logs.expect("resolver cannot reach its database");
    scene.logs.expect("service database cannot be drained");
    let gate = Gate::before_commits(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    gate.close().await;
    let (client, sent) = (scene.client.clone(), event.clone());
    let call = tokio::spawn(async move { client.try_stage(ticket, &[sent]).await });
    gate.somebody_waits().await;
    scene.database_proxy().stall_replies();
    gate.open().await;
    wait::until_equal("the row", LONG, true, || is_there(&scene.database, &event.id)).await;

    // No second attempt either.
    scene.database_proxy().away().await;

    let status = call.await.unwrap().unwrap_err();
    scene.database_proxy().pass().await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.metadata["applied"].as_str()),
        ("DATABASE_UNAVAILABLE", "unknown")
    );
    let again = wait::until("the server to stage again", LONG, || async {
        scene.client.try_stage(ticket, std::slice::from_ref(&event)).await
    })
    .await;
    assert_eq!(again[0].outcome(), Outcome::Duplicate);
    caller.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn the_client_library_retries_a_lost_reply_and_gets_its_duplicate() {
    let scene = Scene::builder().with_database_proxy().start().await;
    scene.logs.expect("resolver cannot reach its database");
    scene.logs.expect("service database cannot be drained");
    let gate = Gate::before_commits(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    gate.close().await;
    let outbox = holdfast_tests::client::outbox(scene.server.address(), SERVICE);
    let sent = event.clone();
    let call = tokio::spawn(async move { outbox.stage(Ticket::from(ticket), [sent]).await });
    gate.somebody_waits().await;
    scene.database_proxy().stall_replies();
    gate.open().await;
    wait::until_equal("the row", LONG, true, || is_there(&scene.database, &event.id)).await;

    // The server tries again by itself, and may well be late.
    scene.database_proxy().away().await;
    scene.database_proxy().pass().await;

    let staged = call.await.unwrap().unwrap();
    assert_eq!(staged.events[0].outcome(), Outcome::Duplicate);
    caller.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn after_a_lost_reply_of_a_database_that_is_there_the_server_finds_out_by_itself() {
    let scene = Scene::builder().with_database_proxy().start().await;
    scene.logs.expect("resolver cannot reach its database");
    scene.logs.expect("service database cannot be drained");
    let gate = Gate::before_commits(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    gate.close().await;
    let (client, sent) = (scene.client.clone(), event.clone());
    let call = tokio::spawn(async move { client.try_stage(ticket, &[sent]).await });
    gate.somebody_waits().await;
    scene.database_proxy().swallow_replies();
    gate.open().await;
    wait::until_equal("the row", LONG, true, || is_there(&scene.database, &event.id)).await;

    scene.database_proxy().pass().await;
    scene.database_proxy().reset();

    let staged = call.await.unwrap().unwrap();
    assert_eq!(staged[0].outcome(), Outcome::Duplicate);
    caller.commit().await;
    scene.client.wait_for_state(&event.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_database_that_refuses_connections_is_unavailable_and_surely_nothing_was_written() {
    let scene = Scene::builder().with_database_proxy().start().await;
    scene.logs.expect("resolver cannot reach its database");
    scene.logs.expect("service database cannot be drained");
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    scene.database_proxy().away().await;

    // On a connection that was idle when the database went the answer is lost, and "unknown" is what is true. Each such connection
    // is used up by one call; then there is none to lose an answer on.
    wait::until("surely nothing was written", LONG, || async {
        let status = scene.client.try_stage(ticket, &[event("order.placed")]).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.reason, "DATABASE_UNAVAILABLE");
        if info.metadata["applied"] == "no" { Ok(()) } else { Err(info.metadata["applied"].clone()) }
    })
    .await;
    reconcile(&scene.database, 0).await;
    scene.database_proxy().pass().await;
    caller.rollback().await;
    scene.end(0).await;
}

fn pool_of_one(url: String) -> Pool {
    Pool::new(&db::Options {
        url,
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: Duration::from_secs(10),
    })
    .unwrap()
}

/// A plain insert, on whatever connection the pool lends.
async fn insert(pool: &Pool, kind: Begin) {
    let mut tx = pool.begin(kind).await.unwrap();
    tx.conn().execute("INSERT INTO app_rows VALUES (gen_random_uuid(), 'a plain insert')").await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_comes_back_inside_a_transaction_is_rolled_back() {
    let database = Database::service().await;
    let pool = pool_of_one(database.url());
    for kind in [Begin::Stage, Begin::StageNow, Begin::Durable, Begin::Forgettable] {
        database.run("TRUNCATE app_rows").await;
        let mut read = pool.read().await.unwrap();
        read.conn()
            .execute("BEGIN; INSERT INTO app_rows VALUES (gen_random_uuid(), 'left open')")
            .await
            .unwrap();
        read.finish(Ok(())).await.unwrap();

        insert(&pool, kind).await;

        let notes: String = database.one("SELECT string_agg(note, ',') FROM app_rows").await;
        assert_eq!(notes, "a plain insert", "{kind:?}");
    }
}

#[tokio::test]
async fn a_begin_that_is_cancelled_half_way_poisons_no_connection() {
    let database = Database::service().await;
    let proxy = Proxy::before(database.server().port).await;
    let pool = pool_of_one(database.url_through(proxy.port()));
    pool.read().await.unwrap().finish(Ok(())).await.unwrap();
    proxy.delay(Duration::from_millis(5));
    for round in 0..12 {
        // From before the BEGIN is sent until after its answer.
        let given_up = tokio::time::timeout(Duration::from_millis(2 * round), pool.begin(Begin::Stage)).await;
        drop(given_up);

        insert(&pool, Begin::Durable).await;
        let kept: i64 = database.one("SELECT count(*) FROM app_rows").await;
        assert_eq!(kept, i64::try_from(round).unwrap() + 1);
    }
}
