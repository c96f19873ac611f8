//! The proxy's modes, before a real PostgreSQL.

use std::time::{Duration, Instant};

use holdfast_tests::{
    chaos::{Flow, Proxy},
    database::{Database, Kind, connect},
    services::PostgresAt,
    wait::{self, LONG},
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

async fn scene() -> (Database, Proxy, PgConnection) {
    let database = Database::fresh(PostgresAt::shared(), Kind::Empty).await;
    database.run("CREATE TABLE n (n int)").await;
    let proxy = Proxy::before(database.server().port).await;
    let connection = connect(&database.url_through(proxy.port())).await;
    (database, proxy, connection)
}

async fn insert(connection: &mut PgConnection, n: i32) -> sqlx::Result<()> {
    connection.execute(AssertSqlSafe(format!("INSERT INTO n VALUES ({n})"))).await.map(drop)
}

async fn rows(database: &Database) -> i64 {
    database.one("SELECT count(*) FROM n").await
}

#[tokio::test]
async fn a_passing_proxy_counts_what_it_carries() {
    let (database, proxy, mut connection) = scene().await;
    let up = proxy.bytes_up();

    insert(&mut connection, 1).await.unwrap();

    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    assert!(proxy.bytes_up() > up && proxy.bytes_down() > 0);
    assert_eq!(rows(&database).await, 1);
    connection.close().await.unwrap();
    wait::until_equal("open connections", LONG, 0, || async { proxy.open() }).await;
}

#[tokio::test]
async fn a_proxy_counts_round_trips() {
    let (_database, proxy, mut connection) = scene().await;
    let before = proxy.turns();
    for n in 0..3 {
        insert(&mut connection, n).await.unwrap();
    }

    // By the simple protocol: one message, one answer.
    sqlx::raw_sql("BEGIN; SELECT 1; COMMIT").execute(&mut connection).await.unwrap();

    assert_eq!(proxy.turns() - before, 4);
}

#[tokio::test]
async fn new_connections_go_where_the_proxy_leads_and_open_ones_stay() {
    let (database, proxy, mut connection) = scene().await;
    let nowhere = holdfast_server::dev::ports::Lease::any().unwrap();

    proxy.lead_to(nowhere.port());

    insert(&mut connection, 1).await.unwrap();
    assert!(PgConnection::connect(&database.url_through(proxy.port())).await.is_err());
}

#[tokio::test]
async fn a_cut_resets_open_connections_and_lets_new_ones_in() {
    let (database, proxy, mut connection) = scene().await;

    proxy.cut().await;

    let error = insert(&mut connection, 1).await.unwrap_err();
    assert!(matches!(error, sqlx::Error::Io(_)), "{error:?}");
    let mut again = connect(&database.url_through(proxy.port())).await;
    insert(&mut again, 1).await.unwrap();
}

#[tokio::test]
async fn a_refusing_proxy_refuses_new_connections_and_keeps_open_ones() {
    let (database, proxy, mut connection) = scene().await;

    proxy.refuse().await;

    insert(&mut connection, 1).await.unwrap();
    assert!(PgConnection::connect(&database.url_through(proxy.port())).await.is_err());
    proxy.pass().await;
    connect(&database.url_through(proxy.port())).await;
}

#[tokio::test]
async fn a_stalled_connection_goes_on_where_it_was() {
    let (database, proxy, mut connection) = scene().await;
    proxy.stall();
    let up = proxy.bytes_up();
    let work = tokio::spawn(async move { insert(&mut connection, 1).await });
    // A second connection is accepted and hears nothing: that it was accepted shows that time has passed.
    let url = database.url_through(proxy.port());
    let waiting = tokio::spawn(async move { PgConnection::connect(&url).await });
    wait::until_equal("accepted connections", LONG, 2, || async { proxy.accepted() }).await;
    assert_eq!((proxy.bytes_up(), rows(&database).await), (up, 0));
    assert!(!work.is_finished() && !waiting.is_finished());

    proxy.pass().await;

    work.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(rows(&database).await, 1);
}

#[tokio::test]
async fn stalled_replies_let_the_work_happen_and_arrive_late() {
    let (database, proxy, mut connection) = scene().await;
    proxy.stall_replies();
    let work = tokio::spawn(async move { insert(&mut connection, 1).await });
    wait::until_equal("rows", LONG, 1, || rows(&database)).await;
    assert!(!work.is_finished());

    proxy.pass().await;

    work.await.unwrap().unwrap();
}

#[tokio::test]
async fn swallowed_replies_let_the_work_happen_and_never_arrive() {
    let (database, proxy, mut connection) = scene().await;
    proxy.swallow_replies();
    let work = tokio::spawn(async move { insert(&mut connection, 1).await });
    wait::until_equal("rows", LONG, 1, || rows(&database)).await;
    assert!(!work.is_finished());

    proxy.cut().await;

    work.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_cut_after_no_reply_byte_loses_the_answer_of_a_commit_that_happened() {
    let (database, proxy, mut connection) = scene().await;
    let down = proxy.bytes_down();
    proxy.cut_after_reply_bytes(0);

    insert(&mut connection, 1).await.unwrap_err();

    assert_eq!((rows(&database).await, proxy.bytes_down()), (1, down));
    proxy.flows(Flow::Pass, Flow::CutAfter(10));
    let cut = PgConnection::connect(&database.url_through(proxy.port())).await;
    assert!(cut.is_err(), "the greeting is longer than ten bytes");
    assert!(proxy.bytes_down() <= down + 10);
}

#[tokio::test]
async fn a_delay_makes_each_round_trip_that_much_longer() {
    let (_database, proxy, mut connection) = scene().await;
    proxy.delay(Duration::from_millis(30));
    let start = Instant::now();

    connection.ping().await.unwrap();

    assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
}
