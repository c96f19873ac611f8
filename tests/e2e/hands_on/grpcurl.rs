//! `grpcurl`, the second real client: another implementation of gRPC, over reflection (design, section 1), and the lines
//! that the protobuf files tell people to type.

use std::{env, fs, path::Path};

use holdfast_tests::{auth, caller::Caller, client::event, scene::Scene, wait};
use serde_json::{Value, json};
use tokio::process::Command;

/// Where `./x test` says that grpcurl is.
const GRPCURL: &str = "HOLDFAST_TEST_GRPCURL";
const STAGE: &str = "holdfast.v1.OutboxService/StageInTx";
const GET: &str = "holdfast.v1.OutboxService/GetEvent";

fn grpcurl() -> String {
    env::var(GRPCURL).unwrap_or_else(|_| {
        panic!("{GRPCURL} is not set: run the tests with `./x test`, which gets a grpcurl, or set it to one of yours")
    })
}

/// What a reader has in `$TOKEN`.
fn token() -> String {
    auth::token(&auth::all_of("orders"))
}

/// Runs a command and gives what it printed, on stdout or, when it failed, on stderr.
async fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    if output.status.success() { Ok(out) } else { Err(err) }
}

/// Calls a method with a JSON request; gives the JSON answer, or what grpcurl says about the failure.
async fn call(scene: &Scene, method: &str, request: &Value) -> Result<Value, String> {
    let mut command = Command::new(grpcurl());
    command.args([
        "-plaintext",
        "-H",
        &format!("authorization: Bearer {}", token()),
        "-d",
        &request.to_string(),
    ]);
    command.arg(scene.server.address().to_string()).arg(method);
    output(command).await.map(|text| serde_json::from_str(&text).unwrap())
}

/// Stages one event in an open transaction whose ticket was taken by plain SQL; gives the caller and the event's id.
async fn stage(scene: &Scene) -> (Caller, String) {
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let id = event("").id;
    let data = json!({"total": "9.90"}).to_string();
    let request = json!({"service": "orders", "ticket": ticket.to_string(),
                         "events": [{"id": id, "type": "order.placed", "json": data}]});
    let answer = call(scene, STAGE, &request).await.unwrap();
    assert_eq!(answer, json!({"events": [{"id": id, "outcome": "OUTCOME_STAGED"}]}));
    (caller, id)
}

async fn state(scene: &Scene, id: &str) -> Result<Value, String> {
    call(scene, GET, &json!({"service": "orders", "id": id})).await.map(|event| event["state"].clone())
}

#[tokio::test]
async fn grpcurl_lists_the_services_over_reflection() {
    let scene = Scene::start().await;
    let mut command = Command::new(grpcurl());
    command
        .args(["-plaintext", "-H", &format!("authorization: Bearer {}", token())])
        .arg(scene.server.address().to_string())
        .arg("list");

    let listed = output(command).await.unwrap();

    for service in ["holdfast.v1.OutboxService", "grpc.health.v1.Health"] {
        assert!(listed.lines().any(|line| line == service), "{service} in {listed}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn grpcurl_stages_and_sees_the_event_before_and_after_the_commit() {
    let scene = Scene::start().await;
    let (mut caller, id) = stage(&scene).await;
    assert_eq!(state(&scene, &id).await.unwrap(), "EVENT_STATE_UNRESOLVED");

    caller.commit().await;

    wait::until("grpcurl to see the event published", wait::LONG, || async {
        match state(&scene, &id).await.unwrap() {
            state if state == "EVENT_STATE_PUBLISHED" => Ok(()),
            state => Err(state),
        }
    })
    .await;
    let came = scene.consumer.wait_for_ids(&[&id], wait::LONG).await;
    assert_eq!(came[0].json["data"], json!({"total": "9.90"}));
    scene.end(1).await;
}

#[tokio::test]
async fn grpcurl_stages_and_does_not_find_the_event_after_the_rollback() {
    let scene = Scene::start().await;
    let (mut caller, id) = stage(&scene).await;

    caller.rollback().await;

    let said = wait::until("grpcurl not to find the event", wait::LONG, || async {
        match state(&scene, &id).await {
            Ok(state) => Err(state),
            Err(said) => Ok(said),
        }
    })
    .await;
    assert!(said.contains("NotFound") && said.contains("EVENT_NOT_FOUND"), "{said}");
    assert_eq!(scene.end(1).await.rows, 0);
}

#[tokio::test]
async fn grpcurl_asks_for_the_servers_health() {
    let scene = Scene::start().await;

    let answer = call(&scene, "grpc.health.v1.Health/Check", &json!({})).await.unwrap();

    assert_eq!(answer["status"], "SERVING");
    scene.end(0).await;
}

/// A documented line: the method it stands above and the command.
type Line = (String, String);

/// All lines of all protobuf files, in their order. Each RPC has one.
fn documented_lines() -> Vec<Line> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/holdfast/v1");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (mut service, mut command) = (String::new(), None);
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("// `grpcurl ") {
                command = Some(rest.strip_suffix('`').unwrap().to_owned());
            } else if let Some(rest) = line.strip_prefix("service ") {
                service = rest.split(' ').next().unwrap().to_owned();
            } else if let Some(rest) = line.strip_prefix("rpc ") {
                let method = format!("holdfast.v1.{service}/{}", rest.split('(').next().unwrap());
                let command = command.take().unwrap_or_else(|| panic!("{method} has no grpcurl line"));
                lines.push((method, command));
            }
        }
    }
    lines
}

#[tokio::test]
async fn every_documented_grpcurl_line_works_as_it_stands() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await.to_string();
    let id = event("").id;
    let lines = documented_lines();
    assert!(lines.iter().any(|(method, _)| method == STAGE), "{lines:?}");

    for (method, line) in &lines {
        assert!(
            line.ends_with(&format!(" localhost:50551 {method}")),
            "{method} is not what is called: {line}"
        );
        // What a reader puts in: an address, a ticket, an id.
        let line = line
            .replace("localhost:50551", &scene.server.address().to_string())
            .replace("-4711", &ticket)
            .replace("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11", &id);
        let mut shell = Command::new("sh");
        shell.env("TOKEN", token()).args(["-c", &format!("exec \"$0\" {line}"), &grpcurl()]);
        output(shell).await.unwrap_or_else(|said| panic!("grpcurl {line}\n{said}"));
    }

    caller.commit().await;
    scene.consumer.wait_for_ids(&[&id], wait::LONG).await;
    // The line of StageNow has an id of its own.
    scene.end(2).await;
}
