//! `holdfast check`: everything that is wrong, at once, with what to do.

use std::time::Instant;

use holdfast_server::{
    db::migrate,
    dev::{Postgres, postgres},
};
use holdfast_tests::{
    database::{Database, Kind},
    folder,
    pgbouncer::PgBouncer,
    scene::Scene,
    server::{EXCHANGE, ServerConfig, ServerInProcess},
    services::{BrokerAt, PostgresAt},
    vhost::Vhost,
};
use serde_json::{Value, json};

use super::{ConfigFile, Said, run};

/// The answers as `subject topic` and verdict, the words apart.
fn verdicts(said: &Said) -> Vec<(String, String)> {
    let report: Value =
        serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}{}", said.out, said.err));
    let checks = report["checks"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    checks
        .iter()
        .map(|one| (format!("{} {}", text(&one["subject"]), text(&one["topic"])), text(&one["verdict"])))
        .collect()
}

fn verdict(said: &Said, of: &str) -> String {
    let all = verdicts(said);
    let found: Vec<&String> = all.iter().filter(|(name, _)| name == of).map(|(_, verdict)| verdict).collect();
    assert_eq!(found.len(), 1, "{of} in {all:#?}");
    found[0].clone()
}

async fn checked(config: &ServerConfig) -> Said {
    run(ConfigFile::from(config).command(&["check", "--json"])).await
}

async fn with_a_login(database: &Database, rights: &str) -> String {
    let login = format!("{}_login", database.name());
    database
        .run(&format!(
            "CREATE ROLE {login} LOGIN;
             GRANT USAGE ON SCHEMA holdfast TO {login};
             GRANT {rights} ON ALL TABLES IN SCHEMA holdfast TO {login};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO {login};
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO {login}"
        ))
        .await;
    database.url().replace("postgres@", &format!("{login}@"))
}

const ALL: &str = "SELECT, INSERT, UPDATE, DELETE";

#[tokio::test]
async fn where_all_is_well_check_says_so_line_by_line_and_exits_with_zero() {
    let mut stage = Scene::builder().stage().await;
    let url = with_a_login(&stage.database, ALL).await;
    let control = with_a_login(&stage.control, ALL).await;
    stage.config.service("orders", &url).text("control", "database_url", &control);
    // Somebody must have declared it.
    let server = ServerInProcess::start(&stage.config).await;
    stage.logs.wait_for("broker connected").await;
    server.stop().await;

    let said = run(ConfigFile::from(&stage.config).command(&["check"])).await;

    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let of = |verdict: &str| said.out.lines().filter(|line| line.starts_with(verdict)).count();
    // fsync is off in the tests' PostgreSQL, once for each database; and nobody has declared the dead-letter exchange.
    assert_eq!((of("ok  "), of("warn"), of("FAIL")), (14, 3, 0), "{}", said.out);
    let version = format!("version {}, this release's", migrate::service_version());
    for line in ["fsync is off", &version, "may do what the server does", "PostgreSQL "] {
        assert!(said.out.contains(line), "{line} in {}", said.out);
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_said_at_once_and_the_exit_code_is_one() {
    let shared = PostgresAt::shared();
    let control = Database::fresh(shared, Kind::Empty).await;
    let [behind, ahead, next, differs, half, rights] =
        futures::future::join_all([(); 6].map(|()| Database::service()))
            .await
            .try_into()
            .unwrap_or_else(|_| unreachable!("six were asked for"));
    let add = |version: i64| {
        format!("INSERT INTO holdfast.schema_migrations SELECT {version}, 'later', now(), true, '\\x00', 1;")
    };
    behind.run("DELETE FROM holdfast.schema_migrations WHERE version = 1").await;
    ahead.run(&(add(101) + &add(201))).await;
    next.run(&(add(101) + &add(102))).await;
    next.run("CREATE INDEX more ON holdfast.event_outbox (event_type)").await;
    differs.run("UPDATE holdfast.schema_migrations SET checksum = '\\x01' WHERE version = 1").await;
    half.run("UPDATE holdfast.schema_migrations SET success = false WHERE version = 1").await;
    half.run("DROP INDEX holdfast.event_outbox_fresh").await;
    let lacking = with_a_login(&rights, "SELECT, INSERT").await;
    let limited = Database::service().await;
    let few = with_a_login(&limited, ALL).await;
    limited.run(&format!("ALTER ROLE {}_login CONNECTION LIMIT 7", limited.name())).await;
    let mut config = ServerConfig::new(&control.url(), &BrokerAt::shared().url("no-such-vhost"));
    config.set("", "replicas", "60");
    config.service("away", "postgres://postgres:hunter2@127.0.0.1:1/away");
    config.service("missing", &shared.url("no_such_database"));
    for (name, database) in
        [("behind", &behind), ("ahead", &ahead), ("next", &next), ("differs", &differs), ("half", &half)]
    {
        config.service(name, &database.url());
    }
    config.service("rights", &lacking).service("limited", &few);

    let begun = Instant::now();
    let said = checked(&config).await;

    assert_eq!(said.code, Some(1));
    for (of, expected) in [
        ("control schema", "fail"),
        ("control control schema", "fail"),
        ("services.away reachable", "fail"),
        ("services.missing reachable", "fail"),
        ("services.behind schema", "fail"),
        ("services.ahead schema", "fail"),
        ("services.next schema", "ok"),
        ("services.next drift", "warn"),
        ("services.ahead drift", "fail"),
        ("services.half drift", "fail"),
        ("services.differs schema", "fail"),
        ("services.half schema", "fail"),
        ("services.rights rights", "fail"),
        ("services.rights schema", "ok"),
        ("services.limited rights", "ok"),
        ("broker reachable", "fail"),
        (&format!("postgres 127.0.0.1:{} connections", shared.port), "fail"),
        (&format!("postgres 127.0.0.1:{} login", shared.port), "fail"),
    ] {
        assert_eq!(verdict(&said, of), expected, "{of}: {}", said.out);
    }
    for words in [
        "run `holdfast migrate`",
        "migrations not applied yet: 1",
        "version 201; this release runs on at most 199",
        "index holdfast.event_outbox_fresh is missing",
        "DELETE, UPDATE on table event_outbox",
        // As JSON has it.
        &format!("the login \\\"{}_login\\\" has a limit of 7", limited.name()),
        "migration 1 began and did not end",
    ] {
        assert!(said.out.contains(words), "{words} in {}", said.out);
    }
    assert!(!said.out.contains("hunter2") && !said.err.contains("hunter2"));
    // All at the same time: one that is away costs its own patience and no other's.
    assert!(begun.elapsed().as_secs() < 25, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_service_that_the_configuration_leaves_out_is_told() {
    let stage = Scene::builder().stage().await;
    let said = checked(&stage.config).await;
    assert_eq!(verdict(&said, "control roster"), "ok", "{}", said.out);
    stage
        .control
        .run("INSERT INTO holdfast.known_service (name, undelivered, counted_at) VALUES ('gone', 5, now())")
        .await;

    let said = checked(&stage.config).await;

    assert_eq!(verdict(&said, "control roster"), "fail", "{}", said.out);
    assert!(said.out.contains("gone (5 undelivered"), "{}", said.out);
}

#[tokio::test]
async fn one_login_of_two_databases_is_counted_for_both_and_a_database_for_its_listener_too() {
    let mut stage = Scene::builder().stage().await;
    let (other, tight) = (Database::service().await, Database::service().await);
    let login = with_a_login(&stage.database, ALL).await;
    let user = format!("{}_login", stage.database.name());
    stage.database.run(&format!("ALTER ROLE {user} CONNECTION LIMIT 15")).await;
    let elsewhere =
        login.replace(stage.database.name(), other.name()).replace(&format!("{}_login", other.name()), &user);
    let listening = with_a_login(&tight, ALL).await;
    tight.run(&format!("ALTER DATABASE {} CONNECTION LIMIT 8", tight.name())).await;
    stage.config.service("orders", &login).service("billing", &elsewhere);
    stage.config.service("tight", &listening).text("services.tight", "wake", "notify");

    let said = checked(&stage.config).await;

    let at = PostgresAt::shared().port;
    assert_eq!(verdict(&said, &format!("postgres 127.0.0.1:{at} login")), "fail", "{}", said.out);
    assert_eq!(verdict(&said, &format!("postgres 127.0.0.1:{at} database")), "fail", "{}", said.out);
    for words in ["16 connections (services.billing, services.orders)", "10 connections (services.tight)"] {
        assert!(said.out.contains(words), "{words} in {}", said.out);
    }
}

#[tokio::test]
async fn a_pooler_that_the_configuration_does_not_name_is_found_out() {
    let mut stage = Scene::builder().stage().await;
    let pooler = PgBouncer::before(PostgresAt::shared(), 3).await;
    stage.config.service("orders", &pooler.url(&stage.database));

    let said = checked(&stage.config).await;
    assert_eq!(verdict(&said, "services.orders reachable"), "fail", "{}", said.out);
    assert!(said.out.contains("prepared_statements = false"), "{}", said.out);

    stage.config.set("services.orders", "prepared_statements", "false");
    let said = checked(&stage.config).await;
    assert_eq!(verdict(&said, "services.orders reachable"), "ok", "{}", said.out);
    assert_eq!(verdict(&said, "services.orders schema"), "ok", "{}", said.out);
}

#[tokio::test]
async fn a_pooler_that_drops_what_a_connection_brings_along_is_found_out() {
    let mut stage = Scene::builder().stage().await;
    let pooler = PgBouncer::that_ignores(PostgresAt::shared(), 3, "extra_float_digits, options").await;
    stage.config.service("orders", &pooler.url(&stage.database));

    let said = checked(&stage.config).await;
    assert_eq!((said.code, verdict(&said, "services.orders options").as_str()), (Some(1), "fail"));
}

#[tokio::test]
async fn what_is_announced_must_be_heard_where_the_server_listens() {
    let mut stage = Scene::builder().stage().await;
    let other = Database::service().await;
    let pooler = PgBouncer::before(PostgresAt::shared(), 3).await;
    let deaf = PgBouncer::that_ignores(PostgresAt::shared(), 3, "extra_float_digits, options").await;
    assert!(migrate::announce(&stage.database.url(), true).await.unwrap());
    stage.config.text("services.orders", "wake", "notify");

    let said = checked(&stage.config).await;
    assert_eq!(verdict(&said, "services.orders listening"), "ok", "{}", said.out);
    assert_eq!(verdict(&said, "services.orders wake"), "ok", "{}", said.out);

    stage.config.set("services.orders", "prepared_statements", "false");
    stage.config.text("services.orders", "database_url", &pooler.url(&stage.database));
    for (listen_url, expected) in [
        (stage.database.url(), "ok"),
        // Refused; taken, and the connection lent to the next one; the wrong database.
        (pooler.url(&stage.database), "fail"),
        (deaf.url(&stage.database), "fail"),
        (other.url(), "fail"),
    ] {
        stage.config.text("services.orders", "listen_url", &listen_url);
        let said = checked(&stage.config).await;
        assert_eq!(verdict(&said, "services.orders.listen_url listening"), expected, "{}", said.out);
    }
}

#[tokio::test]
async fn an_outbox_that_announces_otherwise_than_configured_is_sent_to_migrate() {
    let mut stage = Scene::builder().stage().await;
    stage.config.text("services.orders", "wake", "notify");
    let said = checked(&stage.config).await;
    assert_eq!((said.code, verdict(&said, "services.orders wake").as_str()), (Some(1), "fail"));
    assert!(said.out.contains("announces nothing") && said.out.contains("holdfast migrate"), "{}", said.out);

    assert!(migrate::announce(&stage.database.url(), true).await.unwrap());
    stage.config.text("services.orders", "wake", "poll");
    assert_eq!(verdict(&checked(&stage.config).await, "services.orders wake"), "warn");
}

#[tokio::test]
async fn a_standby_is_no_place_to_write_to() {
    let dir = folder::scratch();
    let mut server = Postgres::start(postgres::Options::new(dir.path())).await.unwrap();
    let at = PostgresAt { port: server.port() };
    let (database, stage) = (Database::fresh(at, Kind::Service).await, Scene::builder().stage().await);
    let mut config = stage.config.clone();
    config.service("billing", &database.url());
    server.stop().await.unwrap();
    std::fs::write(dir.path().join("data/standby.signal"), "").unwrap();
    server.start_again().await.unwrap();

    let said = checked(&config).await;

    assert_eq!((said.code, verdict(&said, "services.billing reachable").as_str()), (Some(1), "fail"));
    assert!(said.out.contains("a standby"), "{}", said.out);
}

#[tokio::test]
async fn an_exchange_of_another_kind_is_a_failure_and_a_missing_one_a_warning() {
    let stage = Scene::builder().stage().await;
    let vhost = Vhost::fresh().await;
    let mut config = stage.config.clone();
    config.text("broker", "url", &vhost.url());
    assert_eq!(verdict(&checked(&config).await, "broker exchange"), "warn");

    let path = format!("/api/exchanges/{}/{EXCHANGE}", vhost.name());
    vhost.ask("PUT", &path, Some(&json!({"type": "fanout", "durable": true}))).await;
    let said = checked(&config).await;
    assert_eq!((said.code, verdict(&said, "broker exchange").as_str()), (Some(1), "fail"));

    vhost.ask("DELETE", &path, None).await;
    vhost.ask("PUT", &path, Some(&json!({"type": "topic", "durable": true}))).await;
    assert_eq!(verdict(&checked(&config).await, "broker exchange"), "ok");
}

#[tokio::test]
async fn a_server_warns_once_of_more_connections_than_its_postgresql_has() {
    let mut stage = Scene::builder().stage().await;
    stage.config.set("", "replicas", "100");
    stage.logs.expect("more connections than this PostgreSQL has: 100 replicas may open");

    let scene = stage.start().await;

    scene.logs.wait_for("more connections than this PostgreSQL has").await;
    assert_eq!(scene.logs.with("more connections than this PostgreSQL has").len(), 1);
    scene.end(0).await;
}
