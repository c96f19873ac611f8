//! Messages over which the broker closes the channel: only the guilty row pays (design, section 4; pitfalls, "RabbitMQ and
//! lapin").

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    client::event,
    scene::{Scene, Stage},
    server::EXCHANGE,
    wait::{self, LONG},
};
use serde_json::json;
use sqlx::Connection as _;

use super::{hold_drain_lock, put, row, row_is};

/// Has the server use an account of its own, which may publish no other types than `allowed` says.
async fn restrict(stage: &mut Stage, allowed: &str) -> String {
    let user = format!("u-{}", stage.vhost.name());
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    let account = json!({"password": "secret", "tags": ""});
    stage.vhost.ask("PUT", &format!("/api/users/{user}"), Some(&account)).await;
    stage.vhost.ask("PUT", &format!("/api/permissions/{}/{user}", stage.vhost.name()), Some(&all)).await;
    allow(stage, &user, allowed).await;
    let url = stage.vhost.url().replace("guest:guest", &format!("{user}:secret"));
    stage.config.text("broker", "url", &url);
    user
}

async fn allow(stage: &Stage, user: &str, types: &str) {
    let rights = json!({"exchange": EXCHANGE, "write": types, "read": ".*"});
    stage
        .vhost
        .ask("PUT", &format!("/api/topic-permissions/{}/{user}", stage.vhost.name()), Some(&rights))
        .await;
}

#[tokio::test]
async fn a_type_that_the_broker_forbids_costs_only_its_own_event() {
    let mut stage = Scene::builder().stage().await;
    let user = restrict(&mut stage, "^(order|test)\\.").await;
    stage.logs.expect("the broker closed a channel over a message");
    let holder = hold_drain_lock(&stage.database).await;
    let many = |n: usize| {
        format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT 'order.placed', '{{}}' FROM generate_series(1, {n})"
        )
    };
    stage.database.run(&many(100)).await;
    let forbidden = put(&stage.database, "forbidden.fruit", Some("k"), &[]).await;
    let behind = put(&stage.database, "order.paid", Some("k"), &[]).await;
    stage.database.run(&many(100)).await;
    let scene = stage.start().await;
    holder.close().await.unwrap();

    let published = "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL";
    wait::until_equal("allowed events published", LONG, 200_i64, || async {
        scene.database.one(published).await
    })
    .await;

    let failed = row_is(&scene.database, &forbidden, "refused", |row| row.attempts > 0 && !row.claimed).await;
    assert!(failed.error.contains("403") && failed.backing_off && !failed.published, "{failed:?}");
    let blamed = "SELECT count(*) FROM holdfast.event_outbox WHERE attempts > 0";
    assert_eq!(scene.database.one::<i64>(blamed).await, 1);
    assert!(!row(&scene.database, &behind).await.published, "it waits behind the refused one");
    assert!(scene.server.metric("holdfast_publish_failures_total", "refused") >= 1.0);
    allow(&scene, &user, ".*").await;
    scene.client.wait_for_state(&behind, EventState::Published).await;
    assert_eq!(
        super::only(super::first_deliveries(scene.consumer.ids()), &[forbidden.clone(), behind.clone()]),
        [forbidden, behind]
    );
    scene.vhost.ask("DELETE", &format!("/api/users/{user}"), None).await;
    scene.logs.expect("broker connection lost");
    scene.logs.expect("broker cannot be reached");
    scene.end(202).await;
}

#[tokio::test]
async fn events_that_the_broker_forbids_fail_one_by_one_and_those_between_them_go_out() {
    let mut stage = Scene::builder().stage().await;
    let user = restrict(&mut stage, "^(order|test)\\.").await;
    stage.logs.expect("the broker closed a channel over a message");
    let holder = hold_drain_lock(&stage.database).await;
    stage
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT CASE WHEN n % 10 = 0 THEN 'forbidden.fruit' ELSE 'order.placed' END, '{}'
             FROM generate_series(1, 100) AS n",
        )
        .await;
    let scene = stage.start().await;
    holder.close().await.unwrap();

    wait::until_equal("events judged", LONG, "90 10".to_owned(), || async {
        scene
            .database
            .one(
                "SELECT concat_ws(' ', count(*) FILTER (WHERE published_at IS NOT NULL AND event_type = 'order.placed'),
                                  count(*) FILTER (WHERE attempts > 0 AND event_type = 'forbidden.fruit'))
                 FROM holdfast.event_outbox",
            )
            .await
    })
    .await;

    let later = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&later, EventState::Published).await;
    allow(&scene, &user, ".*").await;
    scene.consumer.wait_for(101, LONG).await;
    wait::until_equal("events published", LONG, 101_i64, || async {
        scene.database.one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL").await
    })
    .await;
    scene.logs.expect("broker connection lost");
    scene.logs.expect("broker cannot be reached");
    scene.vhost.ask("DELETE", &format!("/api/users/{user}"), None).await;
    scene.end(101).await;
}
