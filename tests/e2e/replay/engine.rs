//! The engine: one replica a slice, one rate, books that are written once, whoever dies.

use std::time::Duration;

use holdfast_proto::v1::{ReplayRequest, ReplayState};
use holdfast_server::{
    db::{self, Begin, Conn, Pool},
    jobs::{self, Engine, Kind, Options, Progress, Starting, Step, Turn},
    metrics::Metrics,
};
use holdfast_tests::{
    database::Database,
    logs::Logs,
    plans::pool,
    replay::{Replays, SAID, everything},
    scene::Scene,
    server::{ServerInProcess, ServerProcess},
    wait::{self, LONG},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{books, put_published, replayed};

/// A job that does nothing, and whatever the test wants in the middle of it.
struct Idle {
    database: String,
    meanwhile: &'static str,
}

impl Kind for Idle {
    const NAME: &'static str = "idle";
    type Done = ();

    async fn work(&self, turn: &Turn) -> Result<(), db::Error> {
        if turn.step == Step::Run && !self.meanwhile.is_empty() {
            let mut connection = holdfast_tests::database::connect(&self.database).await;
            sqlx::query(self.meanwhile).execute(&mut connection).await.unwrap();
        }
        Ok(())
    }

    async fn write(&self, _: &mut Conn, turn: &Turn, (): &()) -> Result<Progress, db::Error> {
        let done = if turn.step == Step::Run { i64::from(turn.rows) } else { 0 };
        Ok(Progress { done, finished: turn.step == Step::Prepare, ..Progress::default() })
    }
}

/// A started job of that kind, and an engine for it.
async fn started(database: &Database, rate: i32, meanwhile: &'static str) -> (Engine<Idle>, Pool) {
    Logs::capture();
    let pool = pool(database);
    let id = Uuid::now_v7();
    let mut tx = pool.begin(Begin::Durable).await.unwrap();
    let plan = Starting {
        id,
        kind: Idle::NAME,
        requested_by: "olga",
        lasts: Duration::from_secs(60),
        max_rate: rate,
        ramp: false,
        max_failures: 0.1,
        matched: 1_000,
    };
    jobs::insert(tx.conn(), &plan).await.unwrap();
    assert!(jobs::start(tx.conn(), Idle::NAME, id, "olga", None, false).await.unwrap());
    tx.commit().await.unwrap();
    let metrics = Metrics::new(prometheus::Registry::new()).unwrap().service("orders");
    let kind = Idle { database: database.url(), meanwhile };
    // The gate is opened by who watches the schema.
    pool.gate().open();
    let options = Options::new("me".into(), Duration::from_secs(30));
    (Engine::new(pool.clone(), kind, options, metrics.jobs).0, pool)
}

const DONE: &str = "SELECT done FROM holdfast.job";

#[tokio::test]
async fn a_slice_of_a_job_that_another_replica_has_taken_over_writes_nothing() {
    let database = Database::service().await;
    let taken = "UPDATE holdfast.job SET generation = generation + 1";
    let (engine, _pool) = started(&database, 100, taken).await;
    let closing = CancellationToken::new();

    engine.run_once(&closing).await.unwrap();
    assert_eq!(database.one::<String>("SELECT state FROM holdfast.job").await, "running");
    engine.run_once(&closing).await.unwrap();

    assert_eq!(database.one::<i64>(DONE).await, 0);
    let left = "SELECT count(*) FROM holdfast.job WHERE leased_until IS NOT NULL";
    assert_eq!(database.one::<i64>(left).await, 1, "the lease is the other one's");
}

#[tokio::test]
async fn a_slice_is_a_tenth_of_a_second_s_worth_and_books_the_time_that_its_rows_take() {
    let database = Database::service().await;
    let (engine, _pool) = started(&database, 40, "").await;
    let closing = CancellationToken::new();
    engine.run_once(&closing).await.unwrap();

    engine.run_once(&closing).await.unwrap();
    let wait = engine.run_once(&closing).await.unwrap();

    assert_eq!(database.one::<i64>(DONE).await, 4);
    assert!(wait > Duration::ZERO, "nothing is due");
    let booked = "SELECT (next_at - started_at >= interval '100 milliseconds')::text FROM holdfast.job";
    assert_eq!(database.one::<String>(booked).await, "true");
}

#[tokio::test]
async fn a_lease_that_runs_keeps_others_away_and_one_that_ran_out_does_not() {
    let database = Database::service().await;
    let (engine, _pool) = started(&database, 1_000, "").await;
    let closing = CancellationToken::new();
    engine.run_once(&closing).await.unwrap();
    database
        .run("UPDATE holdfast.job SET leased_by = 'other', leased_until = now() + interval '1 minute', next_at = now() - interval '1 minute'")
        .await;

    engine.run_once(&closing).await.unwrap();
    assert_eq!(database.one::<i64>(DONE).await, 0);
    database.run("UPDATE holdfast.job SET leased_until = now() - interval '1 second'").await;
    engine.run_once(&closing).await.unwrap();

    assert_eq!(database.one::<i64>(DONE).await, 100);
}

#[tokio::test]
async fn what_is_paused_or_cancelled_in_the_middle_of_a_slice_has_that_one_s_books() {
    for (act, state) in [
        ("UPDATE holdfast.job SET state = 'paused'", "paused"),
        ("UPDATE holdfast.job SET state = 'cancelled', ended_at = now()", "cancelled"),
    ] {
        let database = Database::service().await;
        let (engine, _pool) = started(&database, 40, act).await;
        let closing = CancellationToken::new();
        engine.run_once(&closing).await.unwrap();
        engine.run_once(&closing).await.unwrap();

        assert_eq!(
            database.one::<String>("SELECT state || ' ' || done FROM holdfast.job").await,
            format!("{state} 4")
        );
    }
}

#[tokio::test]
async fn two_replicas_do_not_double_the_rate_and_do_each_event_once() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let other = ServerInProcess::start(&scene.config).await;
    let events = put_published(&scene.database, 60, "order.placed").await;

    let begun = replays.replay(ReplayRequest { max_rate: Some(20), ..everything() }).await;

    let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;
    assert_eq!(books(&done), [60, 60, 0, 0, 0, 0]);
    // Thirty slices of two, a tenth of a second each.
    let took = "SELECT (ended_at - started_at >= interval '2 seconds')::text FROM holdfast.job";
    assert_eq!(scene.database.one::<String>(took).await, "true");
    let deliveries = scene.consumer.wait_for(60, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), super::once(&events));
    other.stop().await;
    scene.end(60).await;
}

#[tokio::test]
async fn heavy_a_replay_whose_server_is_killed_goes_on_and_its_books_are_right() {
    let scene = Scene::builder().start_process().await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 300, "order.placed").await;
    let begun = replays.replay(ReplayRequest { max_rate: Some(50), ..everything() }).await;
    assert_eq!(begun.state(), ReplayState::Running);
    scene.consumer.wait_for(60, LONG).await;
    let mut scene = scene;
    // In the middle of a slice, if that is where it is; the next one is another's in any case.
    scene.server.kill9().await;
    let next = ServerProcess::start(&scene.config).await;
    scene.replace_server(next);
    scene.database.run("UPDATE holdfast.job SET leased_until = now() WHERE leased_until IS NOT NULL").await;
    scene.database.run("UPDATE holdfast.job SET max_rate = 10000").await;
    let replays = Replays::of(&scene);

    let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;

    assert_eq!(books(&done), [300, 300, 0, 0, 0, 0]);
    let deliveries = scene.consumer.wait_for(300, LONG).await;
    let counts = replayed(&deliveries, &done.replay_id);
    assert_eq!(counts.keys().collect::<Vec<_>>().len(), events.len(), "each at least once");
    assert!(counts.values().all(|times| *times <= 2), "at most the slice in hand twice: {counts:?}");
    scene.end(300).await;
}

#[tokio::test]
async fn a_server_that_stops_leaves_its_replay_to_the_next_one_at_once() {
    let scene = Scene::start().await;
    scene.logs.expect(SAID);
    let replays = Replays::of(&scene);
    put_published(&scene.database, 40, "order.placed").await;
    let begun = replays.replay(ReplayRequest { max_rate: Some(10), ..everything() }).await;
    let mut scene = scene;

    let next = ServerInProcess::start(&scene.config).await;
    scene.replace_server(next).stop().await;

    let leased = "SELECT count(*) FROM holdfast.job WHERE leased_by IS NOT NULL";
    wait::until("a job without a lease, or the next one's", LONG, || async {
        let free: i64 = scene.database.one(leased).await;
        let going: i64 = scene.database.one("SELECT done FROM holdfast.job").await;
        if free == 0 || going == 40 { Ok(()) } else { Err(going) }
    })
    .await;
    scene.database.run("UPDATE holdfast.job SET max_rate = 10000").await;
    let done = Replays::of(&scene).wait_for(&begun.replay_id, ReplayState::Done).await;
    assert_eq!(done.done, 40);
    scene.end(40).await;
}
