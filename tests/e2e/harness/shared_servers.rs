//! What each test gets of the shared servers is its own, and goes with it.

use holdfast_tests::{
    database::{Database, Kind, connect},
    logs::Logs,
    services::PostgresAt,
    vhost::Vhost,
};
use lapin::{Connection, ConnectionProperties};
use sqlx::Connection as _;

#[tokio::test]
async fn two_databases_from_one_template_are_apart_and_vanish_with_open_connections() {
    let server = PostgresAt::shared();
    let (one, two) = tokio::join!(Database::service(), Database::service());
    one.run("INSERT INTO app_rows VALUES (gen_random_uuid(), 'x')").await;
    assert_eq!(two.one::<i64>("SELECT count(*) FROM app_rows").await, 0);
    let mut open = one.connect().await;
    let names =
        format!("SELECT count(*) FROM pg_database WHERE datname IN ('{}', '{}')", one.name(), two.name());

    drop((one, two));

    assert!(open.ping().await.is_err());
    let other = Database::fresh(server, Kind::Empty).await;
    assert_eq!(other.one::<i64>(&names).await, 0);
    assert!(connect(&other.url()).await.close().await.is_ok());
}

#[tokio::test]
async fn a_vhost_lists_its_own_connections_and_closes_them() {
    let (mine, other) = tokio::join!(Vhost::fresh(), Vhost::fresh());
    let named = ConnectionProperties::default().with_connection_name("me".into());
    let connection = Connection::connect(&mine.url(), named).await.unwrap();
    let seen = mine.connections_are(1).await;
    assert_eq!(seen[0].client.as_deref(), Some("me"));
    assert_eq!(other.connections().await, []);

    mine.close(&seen[0]).await;

    mine.connections_are(0).await;
    assert!(connection.create_channel().await.is_err());
}

#[tokio::test]
async fn an_unannounced_warning_fails_and_an_announced_one_does_not() {
    let logs = Logs::capture();
    logs.expect("broker away");
    tracing::warn!(service.name = "orders", "broker away");
    logs.check();
    tracing::error!(code = 7, "database gone");

    let failure = std::panic::catch_unwind(|| logs.check()).unwrap_err();

    let text = failure.downcast_ref::<String>().unwrap();
    assert!(text.contains("database gone code=7") && !text.contains("broker away"), "{text}");
}
