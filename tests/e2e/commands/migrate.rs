//! `holdfast migrate`, and how it fails.

use holdfast_tests::{
    database::{Database, Kind},
    server::ServerConfig,
    services::{BrokerAt, PostgresAt},
};

use super::{ConfigFile, run};

#[tokio::test]
async fn a_database_that_cannot_be_migrated_is_named_and_the_others_are_migrated() {
    let shared = PostgresAt::shared();
    let (control, orders) =
        (Database::fresh(shared, Kind::Empty).await, Database::fresh(shared, Kind::Empty).await);
    let newer = Database::service().await;
    newer.run("INSERT INTO holdfast.schema_migrations SELECT 99999, 'of another release', now(), true, '\\x00', 1").await;
    let mut config = ServerConfig::new(&control.url(), &BrokerAt::shared().url("/"));
    config.service("away", "postgres://postgres@127.0.0.1:1/away").service("newer", &newer.url());
    config.service("orders", &orders.url());

    let said = run(ConfigFile::from(&config).command(&["migrate"])).await;

    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("2 database(s) could not be migrated"), "{}", said.err);
    assert!(said.err.contains("services.away.database_url: connecting: "), "{}", said.err);
    assert!(
        said.err
            .contains("services.newer.database_url: migration 99999 was applied and is not in this release"),
        "{}",
        said.err
    );
    for migrated in [&control, &orders] {
        let there: bool = migrated.one("SELECT to_regclass('holdfast.event_outbox') IS NOT NULL").await;
        assert!(there);
    }
}
