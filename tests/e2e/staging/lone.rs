//! A group is one statement that commits by itself (design, section 3): what it does on a connection that is no longer what
//! it was, and what it writes.

use std::time::Duration;

use holdfast_proto::{
    envelope::{self, Limits},
    v1::Event,
};
use holdfast_server::{
    db::{self, Begin, Pool},
    metrics::Metrics,
    outbox::stage::{Options, Outcome, Stager},
};
use holdfast_tests::{
    caller::Caller,
    chaos::Proxy,
    client::event,
    database::Database,
    scene::SERVICE,
    wait::{self, LONG},
};
use serde_json::Value;
use sqlx::Executor as _;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

/// A stager over a pool, and nothing else of a server.
struct Alone {
    stager: Stager,
    pool: Pool,
    _worker: AbortOnDropHandle<()>,
}

fn alone(database: &Database, connections: u32) -> Alone {
    alone_at(database.url(), connections)
}

fn alone_at(url: String, connections: u32) -> Alone {
    let pool = Pool::new(&db::Options {
        url,
        max_connections: connections,
        prepared_statements: true,
        acquire_timeout: Duration::from_secs(10),
    })
    .unwrap();
    let metrics = Metrics::new(Default::default()).unwrap().service(SERVICE);
    let (stager, worker) = Stager::new(pool.clone(), Options::new(envelope::source(SERVICE)), metrics);
    let worker = AbortOnDropHandle::new(tokio::spawn(worker.run(CancellationToken::new())));
    Alone { stager, pool, _worker: worker }
}

impl Alone {
    async fn stage(&self, ticket: Option<i64>, event: &Event) -> Vec<Outcome> {
        let valid = envelope::validate(std::slice::from_ref(event), None, &Limits::default()).unwrap();
        self.stager.stage(ticket, None, valid, 1).await.unwrap()
    }
}

async fn there(database: &Database, id: &str) -> i64 {
    database.one(&format!("SELECT count(*) FROM holdfast.event_outbox WHERE id = '{id}'")).await
}

/// A connection comes back to the pool of one inside of what `left` begins; the next stage must have its row all the same.
async fn after(left: &'static str, works: bool) {
    let database = Database::service().await;
    let alone = alone(&database, 1);
    let mut read = alone.pool.read().await.unwrap();
    assert_eq!(read.conn().execute(left).await.is_ok(), works);
    read.finish(Ok(())).await.unwrap();
    let new = event("order.placed");

    let outcomes = alone.stage(None, &new).await;

    assert_eq!(outcomes, [Outcome::Staged]);
    assert_eq!(there(&database, &new.id).await, 1, "an OK whose transaction was never committed");
    assert_eq!(database.one::<i64>("SELECT count(*) FROM app_rows").await, 0);
}

#[tokio::test]
async fn on_a_connection_that_was_left_in_a_transaction_of_ours_nothing_vanishes() {
    // What a BEGIN of ours leaves, cancelled inside of its round trip.
    after("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '20s'", true).await;
}

#[tokio::test]
async fn on_a_connection_that_was_left_in_a_transaction_that_has_written_nothing_vanishes() {
    after("BEGIN; INSERT INTO app_rows VALUES (gen_random_uuid(), 'left open')", true).await;
}

#[tokio::test]
async fn on_a_connection_that_was_left_in_a_failed_transaction_nothing_vanishes() {
    after("BEGIN; SELECT 1 / 0", false).await;
}

#[tokio::test]
async fn every_kind_of_transaction_of_ours_is_known_for_one() {
    let database = Database::service().await;
    let pool = alone(&database, 1).pool;
    let mut lone = pool.lone(Begin::Stage).await.unwrap();
    let mark = lone.session_mark().unwrap();
    const SETTING: &str = "SELECT current_setting('idle_in_transaction_session_timeout')";
    let own: Result<String, _> = sqlx::query_scalar(SETTING).fetch_one(lone.conn()).await;
    assert_eq!(lone.finish(own.map_err(db::Error::from)).await.unwrap(), mark);
    for kind in [Begin::Stage, Begin::StageNow, Begin::Durable, Begin::Forgettable] {
        let mut tx = pool.begin(kind).await.unwrap();
        let begun: String = sqlx::query_scalar(SETTING).fetch_one(tx.conn()).await.unwrap();
        tx.rollback().await;
        assert_ne!(begun, mark, "{kind:?}");
    }
}

#[tokio::test]
async fn after_the_database_has_ended_every_idle_connection_a_group_is_staged_at_once() {
    let database = Database::service().await;
    let alone = alone(&database, 4);
    let mut reads = Vec::new();
    for _ in 0..4 {
        reads.push(alone.pool.read().await.unwrap());
    }
    for read in reads {
        read.finish(Ok(())).await.unwrap();
    }
    wait::until_equal("four idle connections", LONG, 4, || async { alone.pool.idle() }).await;
    let ended: i64 = database
        .one(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'holdfast'",
        )
        .await;
    assert_eq!(ended, 4);
    let new = event("order.placed");

    assert_eq!(alone.stage(None, &new).await, [Outcome::Staged]);

    assert_eq!(there(&database, &new.id).await, 1);
}

#[tokio::test]
async fn a_lone_statement_that_is_dropped_takes_its_connection_along() {
    let database = Database::service().await;
    let pool = alone(&database, 1).pool;
    let mut lone = pool.lone(Begin::Stage).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(lone.conn()).await.unwrap();

    // It ends soon, so that the pool would get the connection back in order.
    let given_up = tokio::time::timeout(Duration::from_millis(20), async move {
        lone.conn().execute("INSERT INTO app_rows SELECT gen_random_uuid(), 'late' FROM pg_sleep(1)").await
    });
    assert!(given_up.await.is_err());

    let mut next = pool.lone(Begin::Stage).await.unwrap();
    let other: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(next.conn()).await.unwrap();
    assert_ne!(pid, other);
}

#[tokio::test]
async fn what_the_server_refuses_was_surely_not_applied_and_what_ends_the_session_may_have_been() {
    let database = Database::service().await;
    let pool = alone(&database, 1).pool;
    for (sql, surely_not) in [
        ("INSERT INTO app_rows SELECT gen_random_uuid(), (1 / 0)::text", true),
        (
            "INSERT INTO app_rows SELECT gen_random_uuid(), pg_terminate_backend(pg_backend_pid())::text",
            false,
        ),
    ] {
        let mut lone = pool.lone(Begin::Stage).await.unwrap();
        let done = lone.conn().execute(sql).await.map_err(db::Error::from);

        let error = lone.finish(done).await.unwrap_err();

        assert_eq!(error.certainly_not_applied(), surely_not, "{error:?}");
    }
}

#[tokio::test]
async fn a_group_costs_one_round_trip_and_the_return_of_its_connection_another() {
    let database = Database::service().await;
    let proxy = Proxy::before(database.server().port).await;
    let alone = alone_at(database.url_through(proxy.port()), 1);
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    for ticket in [Some(ticket), None] {
        // Connects, prepares.
        alone.stage(ticket, &event("order.placed")).await;
        let returned = || wait::until_equal("an idle connection", LONG, 1, || async { alone.pool.idle() });
        returned().await;
        let before = proxy.turns();
        for _ in 0..10 {
            alone.stage(ticket, &event("order.placed")).await;
            returned().await;
        }
        assert_eq!(proxy.turns() - before, 20);
    }
    caller.rollback().await;
}

#[tokio::test]
async fn the_document_of_a_group_is_that_of_a_request_alone() {
    let database = Database::service().await;
    let alone = alone(&database, 4);
    let mut caller = Caller::connect(&database.url()).await;
    let ticket = caller.begin_with_ticket().await;
    for n in 0..20 {
        let new = Event { time: None, ..event("order.placed") };
        // The even ones go in a group; the others alone, because an id of theirs is there already.
        let mut events = vec![new.clone()];
        if n % 2 == 1 {
            let first = event("order.placed");
            alone.stage(Some(ticket), &first).await;
            events.push(first);
        }
        let valid = envelope::validate(&events, None, &Limits::default()).unwrap();

        alone.stager.stage(Some(ticket), None, valid.clone(), 1).await.unwrap();

        let id: Uuid = new.id.parse().unwrap();
        let text: String = database
            .one(&format!("SELECT envelope::text FROM holdfast.event_outbox WHERE id = '{id}'"))
            .await;
        let stored: Value = serde_json::from_str(&text).unwrap();
        let time = OffsetDateTime::parse(stored["time"].as_str().unwrap(), &Rfc3339).unwrap();
        let composed = valid[0].envelope_text(&envelope::source(SERVICE), time);
        assert_eq!(stored, serde_json::from_str::<Value>(&composed).unwrap());
        let off: f64 = database
            .one(&format!(
                "SELECT abs(extract(epoch FROM clock_timestamp() - '{}'))::float8",
                stored["time"].as_str().unwrap()
            ))
            .await;
        assert!(off < 60.0, "the database's clock: {off} s");
    }
    caller.rollback().await;
}
