//! `StageNow`: events bound to no transaction (design, section 3). They are there for good once the call is answered, and
//! go out without another word.

use std::time::Duration;

use holdfast_proto::v1::{Event, EventState, Outcome, StagedEvent, event::Data};
use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    client::{event, ids, keyed},
    folder,
    reconcile::reconcile,
    scene::Scene,
    services::PostgresAt,
    wait::{self, LONG},
};
use sqlx::{Connection as _, Executor as _};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{gate::Gate, refusal};

/// What a database that is shut down under a server makes it say.
const AWAY: [&str; 5] = [
    "service database cannot be drained",
    "resolver cannot reach its database",
    "outcomes cannot be written; they are kept and tried again",
    "sqlx_core::pool::connection",
    "terminating connection due to immediate shutdown command",
];

/// The drain's advisory lock, held for as long as the session lives.
const DRAIN_LOCK: &str = "SELECT pg_advisory_lock(x'484F4C44'::integer, 1)";

fn changed(event: &Event) -> Event {
    Event { data: Some(Data::Json(r#"{"n":2}"#.to_owned())), ..event.clone() }
}

fn outcomes(staged: &[StagedEvent]) -> Vec<Outcome> {
    staged.iter().map(StagedEvent::outcome).collect()
}

#[tokio::test]
async fn events_bound_to_no_transaction_go_out_at_once_and_in_their_order() {
    // Nobody comes by by himself.
    let scene = Scene::builder().set("drain", "poll", "\"1h\"").start().await;
    let events: Vec<_> = (0..20).map(|_| keyed("order.placed", "k")).collect();

    scene.client.stage_now(&events).await;

    let all = ids(&events);
    scene.consumer.wait_for_ids(&all, LONG).await;
    assert_eq!(scene.consumer.ids(), all);
    let sent = scene.client.wait_for_state(&all[0], EventState::Published).await;
    assert!(sent.resolved_at.is_some());
    assert_eq!(scene.end(20).await.published, 20);
}

#[tokio::test]
async fn an_acknowledged_event_survives_an_immediate_shutdown_of_postgresql() {
    let folder = folder::scratch();
    // It writes nothing by itself: a commit that should have been flushed and was not shows.
    let options =
        postgres::Options::new(folder.path()).setting("fsync = off").setting("wal_writer_delay = 10s");
    let mut postgres = Postgres::start(options).await.unwrap();
    let scene = Scene::builder().on_postgres(PostgresAt { port: postgres.port() }).start().await;
    AWAY.iter().for_each(|line| scene.logs.expect(line));
    let mut all = Vec::new();
    for _ in 0..3 {
        // A claim would flush as well.
        let mut holder = scene.database.connect().await;
        holder.execute(DRAIN_LOCK).await.unwrap();
        let new = event("order.placed");
        let staged = wait::until("the stage to be answered", LONG, || async {
            scene.client.try_stage_now(std::slice::from_ref(&new)).await
        })
        .await;
        assert_eq!(outcomes(&staged), [Outcome::Staged]);

        postgres.kill_immediate().await.unwrap();
        postgres.start_again().await.unwrap();

        let found = format!("SELECT count(*) FROM holdfast.event_outbox WHERE id = '{}'", new.id);
        assert_eq!(scene.database.one::<i64>(&found).await, 1);
        all.push(new.id);
    }
    scene.consumer.wait_for_ids(&all, LONG).await;
    assert_eq!(scene.end(3).await.published, 3);
}

#[tokio::test]
async fn a_duplicate_is_as_durable_as_what_was_staged() {
    let folder = folder::scratch();
    let options =
        postgres::Options::new(folder.path()).setting("fsync = off").setting("wal_writer_delay = 10s");
    let mut postgres = Postgres::start(options).await.unwrap();
    let scene = Scene::builder().on_postgres(PostgresAt { port: postgres.port() }).start().await;
    AWAY.iter().for_each(|line| scene.logs.expect(line));
    // Neither claim nor verdict: they would flush as well.
    let mut holder = scene.database.connect().await;
    holder.execute(DRAIN_LOCK).await.unwrap();
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let first = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&first)).await;
    let mut busy = scene.database.connect().await;
    busy.execute("BEGIN; SELECT FROM holdfast.event_outbox FOR UPDATE").await.unwrap();
    caller.sql("SET LOCAL synchronous_commit = off").await;
    caller.commit().await;

    let again = scene.client.try_stage_now(std::slice::from_ref(&first)).await.unwrap();
    postgres.kill_immediate().await.unwrap();

    assert_eq!(outcomes(&again), [Outcome::Duplicate]);
    postgres.start_again().await.unwrap();
    scene.consumer.wait_for_ids(&[&first.id], LONG).await;
    assert_eq!(scene.end(1).await.published, 1);
}

#[tokio::test]
async fn staging_now_needs_no_broker() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    for line in ["broker connection lost", "broker cannot be reached", "no channel to publish on"] {
        scene.logs.expect(line);
    }
    scene.broker_proxy().away().await;
    scene.logs.wait_for("broker connection lost").await;
    let new = event("order.placed");

    scene.client.stage_now(std::slice::from_ref(&new)).await;

    let waiting = scene.client.get(&new.id).await.unwrap();
    assert_eq!((waiting.state(), waiting.attempts), (EventState::Pending, 0), "{}", waiting.why);
    scene.broker_proxy().pass().await;
    scene.consumer.wait_for_ids(&[&new.id], LONG).await;
    scene.end(1).await;
}

#[tokio::test]
async fn an_event_that_is_there_is_a_duplicate_with_its_content_and_a_conflict_with_another() {
    let scene = Scene::start().await;
    let (now, bound, by_sql) = (event("order.placed"), event("order.placed"), event("order.placed"));
    scene.client.stage_now(std::slice::from_ref(&now)).await;
    scene.commit(&bound).await;
    scene
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope) VALUES ('{}', 'order.placed', '{{}}')",
            by_sql.id
        ))
        .await;

    for there in [&now, &bound] {
        let same = scene.client.try_stage_now(&[there.clone(), event("order.paid")]).await.unwrap();
        assert_eq!(outcomes(&same), [Outcome::Duplicate, Outcome::Staged]);
        let other = refusal(scene.client.try_stage_now(&[event("order.paid"), changed(there)]).await);
        assert_eq!(other, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    }
    let conflict = refusal(scene.client.try_stage_now(std::slice::from_ref(&by_sql)).await);
    assert_eq!(conflict, (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()));
    // And the other way round: what was staged now counts as committed to a ticket.
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let same = scene.client.try_stage(ticket, std::slice::from_ref(&now)).await.unwrap();
    assert_eq!(outcomes(&same), [Outcome::Duplicate]);
    caller.rollback().await;
    let census = scene.end(5).await;
    assert_eq!(census.published, 5);
}

#[tokio::test]
async fn an_id_of_an_open_transaction_is_aborted_and_one_of_a_rolled_back_one_is_replaced() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let staged = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&staged)).await;

    for again in [staged.clone(), changed(&staged)] {
        let status = scene.client.try_stage_now(&[again]).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
        assert_eq!(status.get_details_error_info().unwrap().reason, "EVENT_CONTENDED");
        let after = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert!(after > Duration::ZERO && after <= Duration::from_secs(5), "{after:?}");
    }
    reconcile(&scene.database, 1).await;
    // Nobody writes the verdict: the row is replaced, not found gone.
    let mut holder = scene.database.connect().await;
    holder.execute("BEGIN; SELECT FROM holdfast.event_outbox FOR KEY SHARE").await.unwrap();
    caller.rollback().await;
    let new = changed(&staged);
    let (replaced, ()) = tokio::join!(
        wait::until("the event to be replaced", LONG, || async {
            scene.client.try_stage_now(std::slice::from_ref(&new)).await
        }),
        async { holder.close().await.unwrap() },
    );

    assert_eq!(outcomes(&replaced), [Outcome::Staged]);
    let seen = scene.consumer.wait_for_ids(&[&new.id], LONG).await;
    assert_eq!(seen[0].json["data"]["n"], 2);
    let census = scene.end(2).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (1, 1));
}

#[tokio::test]
async fn a_group_holds_one_kind_and_what_is_bound_shares_no_fate_with_what_is_not() {
    let scene = Scene::start().await;
    let gate = Gate::before_inserts(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let bound: Vec<_> = (0..20).map(|_| event("order.placed")).collect();
    let now: Vec<_> = (0..20).map(|_| event("order.paid")).collect();
    gate.close().await;

    let calls = bound.iter().zip(&now).map(|(bound, now)| async {
        tokio::join!(
            scene.client.try_stage(ticket, std::slice::from_ref(bound)),
            scene.client.try_stage_now(std::slice::from_ref(now)),
        )
    });
    let (answers, ()) = tokio::join!(futures::future::join_all(calls), async {
        gate.somebody_waits().await;
        gate.open().await;
    });
    caller.rollback().await;

    for (bound, now) in answers {
        assert_eq!(outcomes(&bound.unwrap()), [Outcome::Staged]);
        assert_eq!(outcomes(&now.unwrap()), [Outcome::Staged]);
    }
    scene.consumer.wait_for_ids(&ids(&now), LONG).await;
    let census = scene.end(40).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (20, 20));
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_request_is_told_at_once() {
    let scene = Scene::start().await;
    let bad = [Event { id: "no-uuid".to_owned(), ..event("order.placed") }, event("not a type")];

    let status = scene.client.try_stage_now(&bad).await.unwrap_err();
    let nothing = refusal(scene.client.try_stage_now(&[]).await);

    assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_REQUEST");
    let fields: Vec<_> =
        status.get_details_bad_request().unwrap().field_violations.into_iter().map(|v| v.field).collect();
    assert_eq!(fields, ["events[0].id", "events[1].type"]);
    assert_eq!(nothing, (Code::InvalidArgument, "INVALID_REQUEST".to_owned()));
    for (service, expected) in [("holdfast", "RESERVED_SERVICE"), ("nobody", "UNKNOWN_SERVICE")] {
        let client = holdfast_tests::client::Client::new(scene.server.address(), service);
        assert_eq!(refusal(client.try_stage_now(&[event("order.placed")]).await).1, expected);
    }
    scene.end(0).await;
}
