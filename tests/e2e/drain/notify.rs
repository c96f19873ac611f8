//! `wake = "notify"`: events put in by SQL announce themselves, and nothing depends on it (design, section 4, "Wake-up").

use std::time::Duration;

use holdfast_server::db::migrate;
use holdfast_tests::{
    chaos::Proxy,
    client::event,
    database::Database,
    scene::{SERVICE, Scene, Stage},
    server,
    wait::{self, LONG},
};
use sqlx::postgres::PgListener;

use super::put;

const SERVICE_SECTION: &str = "services.orders";
const LISTENERS: &str = "FROM pg_stat_activity
    WHERE application_name = 'holdfast listener' AND datname = current_database()";

async fn on_notify(stage: &mut Stage) {
    assert!(migrate::announce(&stage.database.url(), true).await.unwrap());
    stage.config.text(SERVICE_SECTION, "wake", "notify");
}

/// The one listener, once it listens.
async fn listener(database: &Database) -> i32 {
    wait::until("a listener", LONG, || async {
        let pid: i32 = database
            .one(&format!("SELECT coalesce(max(pid) FILTER (WHERE query LIKE 'LISTEN%'), 0) {LISTENERS}"))
            .await;
        if pid == 0 { Err(()) } else { Ok(pid) }
    })
    .await
}

#[tokio::test]
async fn a_row_put_in_by_sql_goes_out_on_its_announcement_with_the_poll_far_away() {
    let mut stage = Scene::builder().set("drain", "poll", "\"1h\"").stage().await;
    on_notify(&mut stage).await;
    let scene = stage.start().await;
    listener(&scene.database).await;
    // Past the look at the start, which would find it without an announcement.
    let first = put(&scene.database, "order.placed", None, &[]).await;
    scene.consumer.wait_for_ids(&[first], LONG).await;

    for _ in 0..3 {
        let id = put(&scene.database, "order.placed", None, &[]).await;
        scene.consumer.wait_for_ids(&[id], LONG).await;
    }

    scene.end(4).await;
}

#[tokio::test]
async fn a_transaction_announces_its_events_once_and_those_of_a_ticket_not_at_all() {
    let scene = Scene::start().await;
    assert!(migrate::announce(&scene.database.url(), true).await.unwrap());
    assert!(!migrate::announce(&scene.database.url(), true).await.unwrap(), "it is on already");
    let mut heard = PgListener::connect(&scene.database.url()).await.unwrap();
    heard.listen("holdfast_outbox").await.unwrap();
    let many = "INSERT INTO holdfast.event_outbox (event_type, envelope)
                SELECT 'order.placed', '{}' FROM generate_series(1, 100)";

    scene.commit(&event("order.placed")).await;
    scene.database.run(many).await;
    assert!(migrate::announce(&scene.database.url(), false).await.unwrap());
    scene.database.run(many).await;
    scene.database.run("NOTIFY holdfast_outbox, 'marker'").await;

    let mut payloads = Vec::new();
    while payloads.last().is_none_or(|last| last != "marker") {
        payloads.push(heard.recv().await.unwrap().payload().to_owned());
    }
    assert_eq!(payloads, ["", "marker"]);
    scene.end(201).await;
}

#[tokio::test]
async fn a_killed_listener_loses_nothing_and_comes_back() {
    let mut stage = Scene::builder().set("drain", "poll", "\"1h\"").stage().await;
    on_notify(&mut stage).await;
    let scene = stage.start().await;
    scene.logs.expect("new events are not announced");
    let old = listener(&scene.database).await;

    let killed: bool = scene.database.one(&format!("SELECT pg_terminate_backend({old})")).await;
    let meanwhile = put(&scene.database, "order.placed", None, &[]).await;

    assert!(killed);
    // Announced to nobody: found by the look that comes with each new connection.
    scene.consumer.wait_for_ids(&[meanwhile], LONG).await;
    assert_ne!(listener(&scene.database).await, old);
    let id = put(&scene.database, "order.placed", None, &[]).await;
    scene.consumer.wait_for_ids(&[id], LONG).await;
    assert_eq!(scene.logs.with("new events are not announced").len(), 1);
    scene.end(2).await;
}

#[tokio::test]
async fn a_listener_in_nowhere_loses_nothing_and_is_replaced() {
    let mut stage = Scene::builder().stage().await;
    on_notify(&mut stage).await;
    let proxy = Proxy::before(stage.database.server().port).await;
    stage.config.text(SERVICE_SECTION, "listen_url", &stage.database.url_through(proxy.port()));
    let scene = stage.start().await;
    scene.logs.expect("new events are not announced");
    listener(&scene.database).await;
    let first = proxy.accepted();

    proxy.stall();
    let unheard = put(&scene.database, "order.placed", None, &[]).await;

    // By the poll.
    scene.consumer.wait_for_ids(&[unheard], LONG).await;
    // It is noticed, although nobody closed the connection.
    wait::until("another connection", Duration::from_secs(60), || async {
        if proxy.accepted() > first { Ok(()) } else { Err(proxy.accepted()) }
    })
    .await;
    proxy.pass().await;
    scene.logs.wait_for("listening again").await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_server_that_waits_for_announcements_that_are_switched_off_says_so_and_polls() {
    let mut stage = Scene::builder().stage().await;
    stage.config.text(SERVICE_SECTION, "wake", "notify");
    let scene = stage.start().await;
    scene.logs.expect("the outbox announces nothing");
    scene.logs.wait_for("the outbox announces nothing").await;

    let id = put(&scene.database, "order.placed", None, &[]).await;

    scene.consumer.wait_for_ids(&[id], LONG).await;
    scene.end(1).await;
}

#[tokio::test]
async fn migrate_switches_the_announcements_as_the_configuration_says() {
    let mut stage = Scene::builder().stage().await;
    let folder = holdfast_tests::folder::scratch();
    let path = folder.path().join("holdfast.toml");
    for (wake, wanted) in [("notify", true), ("notify", true), ("poll", false)] {
        stage.config.text(&format!("services.{SERVICE}"), "wake", wake);
        std::fs::write(&path, stage.config.to_toml()).unwrap();
        let mut command = tokio::process::Command::new(server::binary());
        let ended = command.args(["migrate", "--config"]).arg(&path).output().await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

        let on: bool = stage
            .database
            .one("SELECT tgenabled <> 'D' FROM pg_trigger WHERE tgname = 'event_outbox_announce'")
            .await;
        assert_eq!(on, wanted);
    }
    stage.logs.check();
}
