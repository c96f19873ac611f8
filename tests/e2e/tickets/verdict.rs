//! The verdict: the lock is found free first, the ticket's row is looked for in a later statement (design, section 3).

use holdfast_server::{db::Conn, outbox, tickets};
use holdfast_tests::{caller::Caller, client::event, database::Database, scene::Scene, wait::LONG};
use sqlx::Row as _;
use uuid::Uuid;

use super::{end, like_the_server, query};

#[tokio::test]
async fn a_commit_before_the_probe_is_a_commit() {
    let database = Database::service().await;
    let mut resolver = like_the_server(&database).await;
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    caller.commit().await;

    let verdicts = tickets::ask(&mut resolver, &[ticket]).await.unwrap();

    assert_eq!((verdicts.committed, verdicts.open), (vec![ticket], vec![]));
    end(resolver, "COMMIT").await;
}

#[tokio::test]
async fn a_commit_between_the_probe_and_the_look_up_is_an_open_transaction_and_then_a_commit() {
    let database = Database::service().await;
    let mut resolver = like_the_server(&database).await;
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;

    let free: Vec<i64> = sqlx::query_scalar(query(tickets::QUERIES, "free"))
        .bind([ticket])
        .fetch_all(&mut resolver)
        .await
        .unwrap();
    caller.commit().await;
    let judged = tickets::judge_free(&mut resolver, &free).await.unwrap();

    assert_eq!(free, [0; 0], "held when it was probed");
    assert!(judged.none_decided(), "what was not found free is not judged: {judged:?}");
    let again = tickets::ask(&mut resolver, &[ticket]).await.unwrap();
    assert_eq!(again.committed, [ticket], "the same transaction sees it in its next statements");
    end(resolver, "COMMIT").await;
}

#[tokio::test]
async fn a_lock_found_free_and_a_row_seen_in_the_next_statement_is_a_commit_whenever_the_first_one_began() {
    // The one order that could go wrong: the resolver's transaction is older than the caller's commit. Were its snapshot
    // the transaction's, and not the statement's, the row would not be there.
    let database = Database::service().await;
    let mut resolver = like_the_server(&database).await;
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    let before: i64 =
        sqlx::query_scalar("SELECT count(*) FROM holdfast.ticket").fetch_one(&mut resolver).await.unwrap();
    caller.commit().await;

    let verdicts = tickets::ask(&mut resolver, &[ticket]).await.unwrap();

    assert_eq!((before, verdicts.committed), (0, vec![ticket]));
    end(resolver, "ROLLBACK").await;
}

#[tokio::test]
async fn a_rollback_before_or_after_the_probe_is_a_rollback() {
    let database = Database::service().await;
    let mut resolver = like_the_server(&database).await;
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    let open = tickets::ask(&mut resolver, &[ticket]).await.unwrap();
    caller.rollback().await;

    let verdicts = tickets::ask(&mut resolver, &[ticket]).await.unwrap();

    assert_eq!((open.open, verdicts.rolled_back), (vec![ticket], vec![ticket]));
    end(resolver, "COMMIT").await;
}

/// Stages an event under each ticket; answers the tickets that are in the way.
async fn stage_group(conn: &mut Conn, asked: &[i64]) -> Vec<i64> {
    let none: Vec<Option<String>> = vec![None; asked.len()];
    let answer = sqlx::query(query(outbox::QUERIES, "stage_group"))
        .bind(asked.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind(vec![None::<Uuid>; asked.len()])
        .bind(vec!["order.placed"; asked.len()])
        .bind(vec!["{}"; asked.len()])
        .bind(&none)
        .bind(vec![None::<Vec<u8>>; asked.len()])
        .bind(asked)
        .bind(vec![false; asked.len()])
        .bind("off")
        .bind(None::<String>)
        .fetch_one(conn)
        .await
        .unwrap();
    assert_eq!(answer.get::<i64, _>("inserted"), 0);
    answer.get("unbound")
}

#[tokio::test]
async fn two_probes_of_a_free_ticket_do_not_take_each_other_for_an_open_transaction() {
    let database = Database::service().await;
    let (mut one, mut two) = (like_the_server(&database).await, like_the_server(&database).await);
    let mut caller = Caller::connect(&database.url()).await;
    let committed = caller.begin_with_ticket().await;
    caller.commit().await;
    let rolled_back = caller.begin_with_ticket().await;
    caller.rollback().await;
    let asked = [committed, rolled_back];

    let first = tickets::ask(&mut one, &asked).await.unwrap();
    // The first one's transaction still has its probes' locks.
    let second = tickets::ask(&mut two, &asked).await.unwrap();
    let unbound: Vec<i64> = stage_group(&mut two, &asked).await;

    assert_eq!((&first.committed, &first.rolled_back), (&vec![committed], &vec![rolled_back]));
    assert_eq!(first, second);
    assert_eq!(unbound.len(), 2, "a prober's lock does not bind a stage: {unbound:?}");
    end(one, "COMMIT").await;
    end(two, "COMMIT").await;
}

#[tokio::test]
async fn a_commit_that_meets_its_own_verdict_is_never_taken_for_a_rollback() {
    let scene = Scene::start().await;
    let mut wanted = Vec::new();
    let mut callers = Vec::new();
    for _ in 0..4 {
        callers.push(scene.caller().await);
    }
    let rounds = callers.into_iter().map(|mut caller| {
        let client = scene.client.clone();
        async move {
            let mut ids = Vec::new();
            for _ in 0..40 {
                let ticket = caller.begin_with_ticket().await;
                let event = event("order.placed");
                client.stage(ticket, std::slice::from_ref(&event)).await;
                // The hint makes the server ask just when the commit happens.
                tokio::join!(client.confirm(ticket), caller.commit());
                ids.push(event.id);
            }
            ids
        }
    });
    for ids in futures::future::join_all(rounds).await {
        wanted.extend(ids);
    }

    scene.consumer.wait_for_ids(&wanted, LONG).await;
    let census = scene.end(160).await;
    assert_eq!((census.published, census.gone.len()), (160, 0));
}
