//! Immediate shutdowns of PostgreSQL, with consumers that commit asynchronously: what is acknowledged is on disk.

use holdfast_proto::v1::{
    ConsumptionState, begin_consume_request::Binding::Ticket, begin_consume_response::Outcome,
};
use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{client::event, folder, inbox::Inbox, scene::Scene, services::PostgresAt, wait};

use super::{
    becomes, id,
    killed::{all_consumed, consumer, effects, queue},
};
use crate::tickets::expect_database_outage;

/// What is not forced out stays in memory for ten seconds, so a shutdown in between forgets it.
async fn forgetful(dir: &std::path::Path) -> Postgres {
    let options = postgres::Options::new(dir).setting("wal_writer_delay = '10s'").setting("fsync = off");
    Postgres::start(options).await.unwrap()
}

#[tokio::test]
async fn a_duplicate_of_an_asynchronous_commit_is_on_disk_and_so_is_its_effect() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    let inbox = Inbox::of(&scene);
    // Told by BeginConsume, and by CompleteConsume.
    let ids = [id(), id()];
    for (n, id) in ids.iter().enumerate() {
        let (mut caller, mut other) = (scene.caller().await, scene.caller().await);
        caller.sql("SET synchronous_commit = off").await;
        let ticket = caller.begin_with_ticket().await;
        let begun = inbox.process(id, Ticket(ticket)).await;
        caller.row(id).await;
        caller.commit().await;
        if n == 0 {
            let ticket = other.begin_with_ticket().await;
            let answer = inbox.begin(id, Ticket(ticket)).await;
            assert!(matches!(answer, Outcome::Duplicate(_)), "{answer:?}");
        } else {
            inbox.try_complete(id, begun.generation).await.unwrap();
        }

        server.kill_immediate().await.unwrap();
        server.start_again().await.unwrap();

        assert_eq!(effects(&scene, id).await, 1, "what was acknowledged is true");
        let seen = wait::until("the database", wait::LONG, || async { inbox.try_get(id).await }).await;
        assert_eq!(seen.state(), ConsumptionState::Processed);
    }
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn an_asynchronous_commit_that_was_forgotten_leaves_no_mark() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    // The resolver would make it durable within a second: it is kept out by a lock.
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    let (inbox, id) = (Inbox::of(&scene), id());
    let (mut caller, mut busy) = (scene.caller().await, scene.caller().await);
    caller.sql("SET synchronous_commit = off").await;
    let ticket = caller.begin_with_ticket().await;
    inbox.process(&id, Ticket(ticket)).await;
    busy.sql("BEGIN; SELECT FROM holdfast.event_inbox FOR UPDATE").await;
    caller.row(&id).await;
    caller.commit().await;

    server.kill_immediate().await.unwrap();
    server.start_again().await.unwrap();

    // Effect and mark are one fact, whichever it is.
    let there = effects(&scene, &id).await;
    let mut next = scene.caller().await;
    let ticket = next.begin_with_ticket().await;
    let answer = wait::until("an answer", wait::LONG, || async {
        match inbox.try_begin(holdfast_tests::inbox::delivery(&id, Ticket(ticket))).await {
            Ok(Outcome::InProgress(wait)) => Err(format!("{wait:?}")),
            Ok(answer) => Ok(answer),
            Err(status) => Err(format!("{status:?}")),
        }
    })
    .await;
    match answer {
        Outcome::Duplicate(_) => assert_eq!(there, 1),
        Outcome::Process(_) => assert_eq!(there, 0),
        other => panic!("{other:?}"),
    }
    next.rollback().await;
    becomes(&inbox, &id, "settled", |seen| seen.state() != ConsumptionState::Begun).await;
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn heavy_through_immediate_shutdowns_asynchronous_consumers_have_each_effect_once() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    queue(&scene).await;
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.push(scene.commit(&event("order.placed")).await);
    }
    let mut consumers = Vec::new();
    for shutdown in 0..3 {
        consumers.extend((0..2).map(|_| consumer(&scene, &scene.server, true, None)));
        let wanted = 10 * (shutdown + 1);
        wait::until("some progress", wait::LONG, || async {
            let seen: i64 = scene.database.one("SELECT count(*) FROM app_rows").await;
            if seen >= wanted { Ok(()) } else { Err(seen) }
        })
        .await;
        server.kill_immediate().await.unwrap();
        server.start_again().await.unwrap();
    }

    all_consumed(&scene, &ids).await;
    for id in &ids {
        assert_eq!(effects(&scene, id).await, 1, "{id}");
    }
    for mut consumer in consumers {
        let _ = consumer.kill().await;
    }
    scene.end_as_it_is().await;
}
