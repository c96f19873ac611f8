//! Many at once, two replicas, and two open transactions in both orders.

use holdfast_proto::v1::{begin_consume_request::Binding::Ticket, begin_consume_response::Outcome};
use holdfast_server::{db::Conn, inbox as feature};
use holdfast_tests::{
    database::Database,
    inbox::{Inbox, lease},
    scene::Scene,
    server::ServerInProcess,
};
use uuid::Uuid;

use super::id;
use crate::tickets::{end, like_the_server, query};

#[tokio::test]
async fn of_many_that_begin_at_once_on_two_replicas_one_processes() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let inboxes = [Inbox::of(&scene), Inbox::at(second.address())];
    for _ in 0..5 {
        let id = id();
        let begins = (0..12).map(|n| {
            let (inbox, id) = (inboxes[n % 2].clone(), id.clone());
            tokio::spawn(async move { inbox.begin(&id, lease(60)).await })
        });
        let mut processing = 0;
        for begun in begins.collect::<Vec<_>>() {
            match begun.await.unwrap() {
                Outcome::Process(process) => {
                    assert_eq!((process.attempt, process.generation), (1, 1));
                    processing += 1;
                }
                Outcome::InProgress(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(processing, 1);
    }
    second.stop().await;
    scene.end(0).await;
}

#[tokio::test]
async fn whoever_has_the_row_locked_has_it_in_progress() {
    let scene = Scene::start().await;
    let (inbox, id) = (Inbox::of(&scene), id());
    let begun = inbox.process(&id, lease(60)).await;
    inbox.try_fail(&id, begun.generation, holdfast_proto::v1::FailKind::GivenBack).await.unwrap();
    let (mut handler, mut caller) = (scene.caller().await, scene.caller().await);
    handler.sql("BEGIN; UPDATE holdfast.event_inbox SET redelivered = true").await;
    let ticket = caller.begin_with_ticket().await;

    let answer = inbox.begin(&id, Ticket(ticket)).await;

    assert!(matches!(answer, Outcome::InProgress(_)), "{answer:?}");
    handler.rollback().await;
    inbox.process(&id, Ticket(ticket)).await;
    caller.rollback().await;
    scene.end(0).await;
}

/// A message begun with a ticket; nobody but the test resolves in this database.
async fn begun(database: &Database, ticket: i64) -> Uuid {
    let id = Uuid::now_v7();
    let sql = format!(
        "INSERT INTO holdfast.event_inbox (envelope_id, consumer_queue, ticket, generation, begun_at)
         VALUES ('{id}', 'q', {ticket}, 1, now())"
    );
    database.run(&sql).await;
    id
}

async fn lose(connection: &mut Conn, ticket: i64) -> u64 {
    let lose = sqlx::query(query(feature::QUERIES, "lose")).bind([ticket]).bind(1_000_i64).bind(3_i32);
    lose.execute(connection).await.unwrap().rows_affected()
}

#[tokio::test]
async fn of_two_open_verdicts_on_one_start_the_second_counts_nothing() {
    let database = Database::service().await;
    begun(&database, 7).await;
    let (mut one, mut two) = (like_the_server(&database).await, like_the_server(&database).await);

    assert_eq!((lose(&mut one, 7).await, lose(&mut two, 7).await), (1, 0));

    end(two, "COMMIT").await;
    end(one, "COMMIT").await;
    assert_eq!(database.one::<i32>("SELECT lost_starts FROM holdfast.event_inbox").await, 1);
}

#[tokio::test]
async fn a_verdict_that_comes_after_a_take_over_changes_nothing_whether_that_is_open_or_committed() {
    let database = Database::service().await;
    begun(&database, 7).await;
    let (mut taking, mut resolver) = (like_the_server(&database).await, like_the_server(&database).await);
    let take = "UPDATE holdfast.event_inbox SET ticket = 8, generation = 2, lost_starts = 1 WHERE ticket = 7";
    sqlx::query(take).execute(&mut taking).await.unwrap();

    let while_open = lose(&mut resolver, 7).await;
    end(taking, "COMMIT").await;
    let when_committed = lose(&mut resolver, 7).await;
    let keep = sqlx::query(query(feature::QUERIES, "keep")).bind([7_i64]).bind(1_000_i64);
    let kept = keep.fetch_all(&mut resolver).await.unwrap().len();
    end(resolver, "COMMIT").await;

    assert_eq!((while_open, when_committed, kept), (0, 0, 0));
    let row = "SELECT ticket * 100 + generation * 10 + lost_starts FROM holdfast.event_inbox";
    assert_eq!(database.one::<i64>(row).await, 821);
}
