//! A service that is taken out of the configuration with events left (design, section 11).

use holdfast_server::{
    app,
    config::Config,
    roster::{Counted, Roster, Told},
};
use holdfast_tests::{
    client::event,
    database::Database,
    logs::Logs,
    scene::{Scene, Stage},
    server::{ServerConfig, ServerInProcess, ServerProcess},
    wait::{self, LONG},
};

const LEFT_OUT: &str = "a service that the configuration leaves out may have undelivered events";

/// Rows that stay: parked.
async fn park(database: &Database, rows: usize) {
    database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, parked_at, parked_reason)
             SELECT 'bill.sent', '{{}}', now(), 'a test' FROM generate_series(1, {rows})"
        ))
        .await;
}

/// A stage whose configuration has another service, which was served and stopped in order; and a configuration without it.
async fn served_once(parked: usize) -> (Stage, Database, ServerConfig) {
    let stage = Scene::builder().stage().await;
    let billing = Database::service().await;
    park(&billing, parked).await;
    let mut both = stage.config.clone();
    both.service("billing", &billing.url());
    let server = ServerInProcess::start(&both).await;
    stage.logs.wait_for("broker connected").await;
    server.stop().await;
    let without = stage.config.clone();
    (stage, billing, without)
}

async fn counted(stage: &Stage) -> Option<i64> {
    stage.control.one("SELECT max(undelivered) FROM holdfast.known_service WHERE name = 'billing'").await
}

#[tokio::test]
async fn a_service_left_out_with_events_is_refused_by_name_and_count() {
    let (stage, _billing, without) = served_once(3).await;
    assert_eq!(counted(&stage).await, Some(3), "counted at the stop");
    stage.logs.expect("nobody would drain");

    let mut server = ServerProcess::spawn(&without);

    assert!(!server.exit_status(LONG).await.success());
    let lines = wait::until("the refusal", LONG, || {
        let all = server.lines().join("\n");
        std::future::ready(if all.contains("billing (3 undelivered") { Ok(all) } else { Err(all) })
    })
    .await;
    assert!(lines.contains("holdfast forget-service") && lines.contains("--force"), "{lines}");
    stage.logs.check();
}

#[tokio::test]
async fn one_that_is_empty_may_go_and_its_name_stays_on_the_roster() {
    let (stage, _billing, without) = served_once(0).await;
    assert_eq!(counted(&stage).await, Some(0));

    ServerInProcess::start(&without).await.stop().await;

    assert_eq!(stage.control.one::<i64>("SELECT count(*) FROM holdfast.known_service").await, 2);
    stage.logs.check();
}

#[tokio::test]
async fn one_that_was_never_counted_is_refused_as_unknown() {
    let stage = Scene::builder().stage().await;
    stage.control.run("INSERT INTO holdfast.known_service (name) VALUES ('billing')").await;

    let config = Config::parse(&stage.config.to_toml()).unwrap();
    let refused = app::start(config).await.err().unwrap().to_string();

    assert!(refused.contains("billing (never counted, last served at "), "{refused}");
}

#[tokio::test]
async fn force_starts_all_the_same_and_warns() {
    let (stage, _billing, without) = served_once(2).await;
    stage.logs.expect(LEFT_OUT);

    let config = Config::parse(&without.to_toml()).unwrap();
    let running = app::start_with(config, app::Absent::Warn).await.unwrap();

    let line = stage.logs.wait_for(LEFT_OUT).await.text;
    assert!(line.contains("billing"), "{line}");
    running.stop().await;
    assert_eq!(counted(&stage).await, Some(2), "it stays on the roster");
    stage.logs.check();
}

#[tokio::test]
async fn counts_are_kept_while_a_server_runs_and_a_killed_one_leaves_the_last() {
    let stage = Scene::builder().stage().await;
    park(&stage.database, 4).await;
    let mut server = ServerProcess::start(&stage.config).await;
    let count = "SELECT max(undelivered) FROM holdfast.known_service WHERE name = 'orders'";
    wait::until_equal("the count", LONG, Some(4_i64), || stage.control.one(count)).await;

    server.kill9().await;

    assert_eq!(stage.control.one::<Option<i64>>(count).await, Some(4));
    stage.logs.expect("broker");
    stage.logs.check();
}

#[tokio::test]
async fn a_control_database_that_is_away_at_start_keeps_nobody_from_being_served_and_is_asked_later() {
    let stage = Scene::builder().stage().await;
    stage
        .control
        .run(
            "INSERT INTO holdfast.known_service (name, undelivered, counted_at) VALUES ('billing', 7, now())",
        )
        .await;
    let away = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS", stage.control.name());
    let admin = Database::service().await;
    admin.run(&format!("{away} false")).await;
    stage.logs.expect("resolver cannot reach its database");
    stage.logs.expect("service database cannot be drained");
    stage.logs.expect(LEFT_OUT);

    let scene = stage.start().await;
    scene.commit(&event("order.placed")).await;
    scene.consumer.wait_for(1, LONG).await;
    admin.run(&format!("{away} true")).await;

    // It is looked at soon after the start, or half a minute later.
    let line = wait::until("the warning", LONG * 2, || {
        let seen = scene.logs.with(LEFT_OUT).into_iter().next().ok_or("no such line");
        std::future::ready(seen)
    })
    .await;
    assert!(line.text.contains("billing"), "{line}");
    scene.end(1).await;
}

#[tokio::test]
async fn a_zero_from_before_the_database_went_away_is_refused_as_unknown() {
    let stage = Scene::builder().stage().await;
    stage
        .control
        .run(
            "INSERT INTO holdfast.known_service (name, undelivered, counted_at)
             VALUES ('billing', 0, now() - interval '3 hours')",
        )
        .await;

    let config = Config::parse(&stage.config.to_toml()).unwrap();
    let refused = app::start(config).await.err().unwrap().to_string();

    assert!(refused.contains("billing (0 undelivered, counted at "), "{refused}");
    assert!(refused.contains(", and served until "), "{refused}");
}

#[tokio::test]
async fn whoever_is_served_is_seen_also_while_nobody_can_count_what_he_has() {
    let control = Database::control().await;
    let (_keep, depth) = tokio::sync::watch::channel(None);
    let away = super::pool("postgres://postgres@127.0.0.1:1/away");
    let service = Counted { name: "billing".to_owned(), pool: away, depth };
    let told = Told { looked: true, ..Told::default() };
    let mut roster = Roster::new(super::pool(&control.url()), vec![service], told);
    control
        .run(
            "INSERT INTO holdfast.known_service (name, undelivered, counted_at, last_seen)
             VALUES ('billing', 0, now() - interval '1 hour', now() - interval '1 hour')",
        )
        .await;

    roster.run_once().await.unwrap();

    let seen = "SELECT last_seen > counted_at + interval '59 minutes' FROM holdfast.known_service";
    assert!(control.one::<bool>(seen).await);
}

#[tokio::test]
async fn a_service_left_out_is_warned_of_whenever_that_begins_and_once_unless_another_server_has_it() {
    let logs = Logs::capture();
    logs.expect(LEFT_OUT);
    let control = Database::control().await;
    let told = Told { looked: true, ..Told::default() };
    let mut roster = Roster::new(super::pool(&control.url()), Vec::new(), told);
    let nobody: [String; 0] = [];
    assert_eq!(roster.run_once().await.unwrap(), nobody);
    control
        .run(
            "INSERT INTO holdfast.known_service (name, undelivered, counted_at, last_seen)
             VALUES ('billing', 3, now() - interval '1 hour', now() - interval '1 hour'),
                    ('empty', 0, now() - interval '1 hour', now() - interval '1 hour'),
                    ('elsewhere', 3, now(), now())",
        )
        .await;

    assert_eq!(roster.run_once().await.unwrap(), ["billing"]);
    assert_eq!(roster.run_once().await.unwrap(), nobody, "once");
    control.run("UPDATE holdfast.known_service SET undelivered = 0 WHERE name = 'billing'").await;
    assert_eq!(roster.run_once().await.unwrap(), nobody);
    control.run("UPDATE holdfast.known_service SET undelivered = 1 WHERE name = 'billing'").await;
    assert_eq!(roster.run_once().await.unwrap(), ["billing"], "another streak");
    assert_eq!(logs.with(LEFT_OUT).len(), 2);
    logs.check();
}

#[tokio::test]
async fn a_roster_that_refuses_is_warned_of_once() {
    // The control database's gate would say that the table is missing; what is looked at is who says what it cannot do.
    let stage = Scene::builder().set("drain", "schema_check", "\"0s\"").stage().await;
    stage.control.run("ALTER TABLE holdfast.known_service RENAME TO away").await;
    stage.logs.expect("the roster of services cannot be kept");

    let scene = stage.start().await;

    scene.logs.wait_for("the roster of services cannot be kept").await;
    // The next one, seconds later, is the same trouble.
    scene.logs.wait_for("the roster could not be kept").await;
    assert_eq!(scene.logs.with("the roster of services cannot be kept").len(), 1);
    scene.end(0).await;
}
