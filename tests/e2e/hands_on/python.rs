//! Python, the third client: grpcio over reflection and psycopg, in a file that people may copy
//! (`tests/python/outbox_client.py`), with a database driver and a gRPC of its own (design, section 1).

use std::{env, path::Path};

use holdfast_tests::{auth, scene::Scene, server::ServerInProcess, wait};
use serde_json::{Value, json};
use tokio::process::Command;

/// Where `./x test` says that the packages are.
const PACKAGES: &str = "HOLDFAST_TEST_PYTHONPATH";

fn packages() -> String {
    env::var(PACKAGES).unwrap_or_else(|_| {
        panic!(
            "{PACKAGES} is not set: run the tests with `./x test`, which gets the packages, or set it to a folder with \
             grpcio, grpcio-reflection, protobuf, psycopg and pika (empty, if your python3 has them)"
        )
    })
}

/// A scene of a file in `tests/python`, with the server's address and the database's URL.
pub(super) fn command(file: &str, name: &str, scene: &Scene<ServerInProcess>) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut command = Command::new("python3");
    command.arg(folder.join(file)).arg(name);
    command.arg(scene.server.address().to_string()).arg(scene.database.url());
    command.env("TOKEN", auth::token(&auth::all_of("orders")));
    // A failed test leaves nothing in the sources.
    command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
    command
}

/// Plays a scene of `tests/python/scenes.py`; gives what it saw.
async fn play(name: &str, scene: &Scene<ServerInProcess>) -> Value {
    let mut command = command("scenes.py", name, scene);
    let output = tokio::time::timeout(wait::LONG * 2, command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {output:?}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[tokio::test]
async fn what_python_commits_arrives_with_its_body_intact() {
    let scene = Scene::start().await;

    let saw = play("committed", &scene).await;

    assert_eq!(saw["answer"], json!([[saw["id"], "OUTCOME_STAGED"]]));
    assert_eq!(saw["before"], "EVENT_STATE_UNRESOLVED");
    let came = scene.consumer.wait_for_ids(&[text(&saw["id"])], wait::LONG).await;
    assert_eq!(came[0].json["data"], saw["body"]);
    assert_eq!(came[0].json["subject"], "o-1");
    assert_eq!(came[0].routing_key, "order.placed");
    let rows: i64 = scene.database.one("SELECT count(*) FROM app_rows WHERE note = 'committed'").await;
    assert_eq!(rows, 1);
    scene.end(1).await;
}

#[tokio::test]
async fn what_python_rolls_back_is_never_delivered_and_not_found() {
    let scene = Scene::start().await;

    let saw = play("rolled_back", &scene).await;

    assert_eq!((text(&saw["code"]), text(&saw["reason"])), ("NOT_FOUND", "EVENT_NOT_FOUND"));
    // It was staged before the marker: what is not there by now never comes.
    let marker = scene.marker(None).await;
    scene.consumer.assert_only::<&str>(&[], marker).await;
    scene.end(2).await;
}

#[tokio::test]
async fn what_python_stages_in_a_savepoint_shares_the_savepoint_s_fate() {
    let scene = Scene::start().await;

    let saw = play("savepoint", &scene).await;

    let kept: Vec<&str> = saw["kept"].as_array().unwrap().iter().map(text).collect();
    scene.consumer.wait_for_ids(&kept, wait::LONG).await;
    let undone = scene.client.get(text(&saw["undone"])).await.unwrap_err();
    assert_eq!(undone.code(), tonic::Code::NotFound);
    let marker = scene.marker(None).await;
    scene.consumer.assert_only(&kept, marker).await;
    scene.end(4).await;
}

#[tokio::test]
async fn python_is_told_of_a_duplicate_and_the_event_comes_once() {
    let scene = Scene::start().await;

    let saw = play("duplicate", &scene).await;

    assert_eq!(saw["outcomes"], json!(["OUTCOME_STAGED", "OUTCOME_DUPLICATE"]));
    scene.consumer.wait_for_ids(&[text(&saw["id"])], wait::LONG).await;
    scene.end(1).await;
}

#[tokio::test]
async fn python_reads_reason_and_fields_of_a_refusal_from_the_trailers() {
    let scene = Scene::start().await;

    let told = play("refusals", &scene).await;

    assert_eq!(
        told,
        json!([
            {"code": "INVALID_ARGUMENT", "reason": "INVALID_REQUEST", "fields": ["events[0].type", "events[1].json"],
             "certainly_not_applied": true},
            {"code": "FAILED_PRECONDITION", "reason": "TICKET_NOT_OPEN", "fields": [],
             "certainly_not_applied": true},
        ])
    );
    scene.end(0).await;
}
