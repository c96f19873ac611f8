//! `holdfast forget-service`.

use holdfast_tests::{database::Database, server::ServerConfig};

use super::{ConfigFile, run};

#[tokio::test]
async fn a_service_is_taken_off_the_roster_unless_it_is_configured_or_not_on_it() {
    let control = Database::control().await;
    control
        .run(
            "INSERT INTO holdfast.known_service (name, undelivered, counted_at)
             VALUES ('billing', 3, now()), ('orders', 0, now())",
        )
        .await;
    let mut config = ServerConfig::new(&control.url(), "amqp://127.0.0.1/x");
    config.service("orders", "postgres://postgres@127.0.0.1:1/orders");
    let file = ConfigFile::from(&config);

    let configured = run(file.command(&["forget-service", "orders"])).await;
    assert_eq!(configured.code, Some(1));
    assert!(configured.err.contains("orders is in the configuration"), "{}", configured.err);

    let forgotten = run(file.command(&["forget-service", "billing"])).await;
    assert_eq!(forgotten.code, Some(0), "{}", forgotten.err);
    assert!(forgotten.out.contains("billing (3 undelivered"), "{}", forgotten.out);

    let again = run(file.command(&["forget-service", "billing"])).await;
    assert_eq!(again.code, Some(1));
    assert!(again.out.contains("billing is not on the roster"), "{}", again.out);
    assert_eq!(
        control.one::<String>("SELECT string_agg(name, ',') FROM holdfast.known_service").await,
        "orders"
    );
}
