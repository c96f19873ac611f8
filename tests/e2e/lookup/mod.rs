//! "Where is my event": one answer from its outbox and from the inbox of each consumer that the caller may read.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use holdfast_proto::v1::{
    ConsumptionState, ErrorReason, EventConsumer, EventState, GetEventResponse, event_consumer::Known,
};
use holdfast_tests::{
    auth,
    client::{Client, event, keyed},
    database::Database,
    inbox::{Inbox, lease},
    scene::{QUEUES, SERVICE, Scene, Server, Stage},
    terminal::Terminal,
    wait,
};
use tonic::Code;

use crate::{drain::put, staging::refusal};

const CONSUMER: &str = "shipping";
const ITS_QUEUE: &str = "shipping.orders";

/// A second service with a queue of its own.
fn consume(stage: &mut Stage, url: &str) {
    stage.config.service(CONSUMER, url);
    stage.config.set(&format!("services.{CONSUMER}"), "consumer_queues", &format!("[{ITS_QUEUE:?}]"));
}

/// A client that may read both services.
fn reader<S: Server>(scene: &Scene<S>) -> Client {
    let token = auth::token(&format!("{SERVICE}.read {CONSUMER}.read"));
    Client::with_token(scene.server.address(), SERVICE, &token)
}

/// Service, queue and what is known, in order.
fn shown(answer: &GetEventResponse) -> Vec<(&str, &str, String)> {
    let known = |one: &EventConsumer| match one.known.as_ref().unwrap() {
        Known::Consumption(row) => row.state().as_str_name().to_owned(),
        Known::NeverBegun(never) => never.why.clone(),
        Known::NotAsked(why) => why.reason().as_str_name().to_owned(),
    };
    answer
        .consumers
        .iter()
        .map(|one| (one.service.as_str(), one.consumer_queue.as_str(), known(one)))
        .collect()
}

const NEVER: &str = "Nobody has begun it there, as far as the inbox remembers.";

#[tokio::test]
async fn every_consumer_that_the_caller_may_read_is_shown_and_no_other() {
    let shipping = Database::service().await;
    let mut stage = Scene::builder().stage().await;
    consume(&mut stage, &shipping.url());
    let scene = stage.start().await;
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    let inbox = Inbox::of(&scene);
    let begun = inbox.process(&id, lease(60)).await;
    inbox.try_complete(&id, begun.generation).await.unwrap();

    let told = reader(&scene).get(&id).await.unwrap();

    assert_eq!(told.state(), EventState::Published);
    let processed = ConsumptionState::Processed.as_str_name().to_owned();
    assert_eq!(
        shown(&told),
        [
            (SERVICE, QUEUES[1], NEVER.to_owned()),
            (SERVICE, QUEUES[0], processed.clone()),
            (CONSUMER, ITS_QUEUE, NEVER.to_owned()),
        ]
    );
    let Some(Known::Consumption(row)) = &told.consumers[1].known else { panic!("{told:?}") };
    assert_eq!((row.generation, row.envelope_id.as_str(), row.service.as_str()), (1, id.as_str(), SERVICE));
    assert!(row.processed_at.is_some());
    // Who may not read the other service is not even told that it consumes.
    let own = scene.client.get(&id).await.unwrap();
    assert_eq!(shown(&own), [(SERVICE, QUEUES[1], NEVER.to_owned()), (SERVICE, QUEUES[0], processed)]);
    scene.end(1).await;
}

#[tokio::test]
async fn a_consumer_whose_database_is_away_is_said_to_be_unknown_and_fails_nothing() {
    let shipping = Database::service().await;
    let proxy = holdfast_tests::chaos::Proxy::before(shipping.server().port).await;
    let mut stage = Scene::builder().stage().await;
    consume(&mut stage, &shipping.url_through(proxy.port()));
    stage.logs.expect(CONSUMER);
    let scene = stage.start().await;
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    let reader = reader(&scene);
    wait::until("the consumer's inbox to be asked", wait::LONG, || async {
        let told = shown(&reader.get(&id).await.unwrap())[2].2.clone();
        if told == NEVER { Ok(()) } else { Err(told) }
    })
    .await;

    for stall in [true, false] {
        if stall {
            proxy.stall();
        } else {
            proxy.away().await;
        }
        let told = reader.get(&id).await.unwrap();
        assert_eq!(told.state(), EventState::Published);
        let away = ErrorReason::DatabaseUnavailable.as_str_name().to_owned();
        assert_eq!(shown(&told)[2], (CONSUMER, ITS_QUEUE, away), "{stall}");
        assert_eq!(shown(&told)[0].2, NEVER);
        let Some(Known::NotAsked(why)) = &told.consumers[2].known else { panic!("{told:?}") };
        assert!(why.message.contains(CONSUMER), "{}", why.message);
    }
    scene.end(1).await;
}

#[tokio::test]
async fn a_consumer_whose_schema_is_not_ours_is_not_asked() {
    let shipping = Database::service().await;
    let mut stage = Scene::builder().set("drain", "schema_check", "\"200ms\"").stage().await;
    consume(&mut stage, &shipping.url());
    let scene = stage.start().await;
    let id = scene.commit(&event("order.placed")).await;
    scene.logs.expect("the service is not served until it is mended");

    shipping.run("DROP INDEX holdfast.hold_outcome_decided").await;
    scene.logs.wait_for("the service is not served until it is mended").await;

    let told = reader(&scene).get(&id).await.unwrap();
    let drifted = ErrorReason::SchemaDrift.as_str_name().to_owned();
    assert_eq!(shown(&told)[2], (CONSUMER, ITS_QUEUE, drifted));
    let Some(Known::NotAsked(why)) = &told.consumers[2].known else { panic!("{told:?}") };
    assert!(why.message.contains("hold_outcome_decided"), "{}", why.message);
    scene.end(1).await;
}

#[tokio::test]
async fn an_event_that_was_pruned_is_found_at_the_consumers_that_have_begun_it() {
    let scene = Scene::start().await;
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    let begun = Inbox::of(&scene).process(&id, lease(60)).await;
    let pruned = format!(
        "WITH gone AS (DELETE FROM holdfast.event_outbox WHERE id = '{id}' RETURNING 1)
         INSERT INTO holdfast.outbox_tally (reason, slot, rows) SELECT 'pruned', 0, count(*) FROM gone"
    );
    scene.database.run(&pruned).await;

    let told = scene.client.get(&id).await.unwrap();

    assert_eq!((told.state(), told.seq, told.r#type.as_str()), (EventState::Forgotten, 0, ""));
    assert!(!told.why.is_empty());
    let Some(Known::Consumption(row)) = &told.consumers[1].known else { panic!("{told:?}") };
    assert_eq!((row.state(), row.generation), (ConsumptionState::Begun, begun.generation));
    // Forgotten there, too, there is nothing left to tell.
    scene.database.run("DELETE FROM holdfast.event_inbox").await;
    let nothing = scene.client.get(&id).await;
    assert_eq!(refusal(nothing), (Code::NotFound, "EVENT_NOT_FOUND".to_owned()));
    scene.end(1).await;
}

#[tokio::test]
async fn an_event_that_was_set_aside_says_behind_which_one() {
    let scene = Scene::start().await;
    let parked = [("parked_at", "now()"), ("parked_reason", "'crashed'"), ("admitted_at", "now()")];
    let first = put(&scene.database, "order.placed", Some("k"), &parked).await;
    let second = scene.commit(&keyed("order.paid", "k")).await;

    wait::until("it to be set aside", wait::LONG, || async {
        let told = scene.client.get(&second).await.unwrap();
        if told.state() == EventState::Pending && told.why.contains(&first) { Ok(()) } else { Err(told.why) }
    })
    .await;
    assert_eq!(scene.client.get(&first).await.unwrap().state(), EventState::Parked);
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn the_command_line_shows_an_event_and_its_consumers() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    let inbox = Inbox::of(&scene);
    let begun = inbox.process(&id, lease(60)).await;
    inbox.try_complete(&id, begun.generation).await.unwrap();

    let told = terminal.does(&["event", SERVICE, &id]).await;

    let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["state", "published"]), "{told}");
    let heads = ["CONSUMER", "QUEUE", "STATE", "STARTS", "ERRORS", "LOST", "PROCESSED", "WHY"];
    assert!(lines.iter().any(|line| line[..] == heads), "{told}");
    let row = lines.iter().find(|line| line.get(1) == Some(&QUEUES[0])).unwrap();
    assert_eq!(row[2..6], ["processed", "1", "0", "0"], "{told}");
    let never = lines.iter().find(|line| line.get(1) == Some(&QUEUES[1])).unwrap();
    assert_eq!(never[2..8], ["-", "-", "-", "-", "-", "Nobody"], "{told}");
    let json = terminal.json(&["event", SERVICE, &id]).await;
    assert_eq!(json[0]["consumers"][1]["consumption"]["state"], "CONSUMPTION_STATE_PROCESSED");
    scene.end(1).await;
}
