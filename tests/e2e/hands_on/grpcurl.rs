//! `grpcurl`, the second real client: another implementation of gRPC, over reflection (design, section 1), and the lines
//! that the protobuf files tell people to type.

use std::env;

use holdfast_proto::{FILE_DESCRIPTOR_SET, v1::ReplayRequest};
use holdfast_tests::{
    auth,
    caller::Caller,
    client::event,
    health::Health,
    inbox::{Inbox, lease},
    replay::{Replays, SAID, everything, from_now},
    runbook::GRPCURL,
    scene::Scene,
    wait,
};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::replay::put_published;

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

    Health::of(scene.server.address()).serves("").await;
    let answer = call(&scene, "grpc.health.v1.Health/Check", &json!({})).await.unwrap();

    assert_eq!(answer["status"], "SERVING");
    scene.end(0).await;
}

/// What the documented lines say for what a reader puts in, and what this test puts in. A new line uses these, or adds its
/// own here and in CONTRIBUTING; what it needs to be there is made in [`every_documented_grpcurl_line_works_as_it_stands`].
struct Placeholders {
    /// `localhost:50551`: where the server listens.
    address: String,
    /// `-4711`: the ticket of an open transaction of service `orders`.
    ticket: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11`: an event of that transaction.
    event: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a12`: an event bound to no transaction.
    event_now: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a21`: a message that nobody has begun.
    message: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a22`: one that was begun once.
    begun: String,
    /// `1780000000`: when that was, in seconds since 1970.
    begun_at: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a41`: a replay that has ended.
    ended: String,
    /// `0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a42`: one that is under way.
    under_way: String,
    /// `2026-01-01T00:00:00Z` and the day after: a window that is not beyond the horizon.
    window: (String, String),
}

impl Placeholders {
    /// Each text with what replaces it.
    fn table(&self) -> [(&'static str, &str); 11] {
        [
            (ADDRESS, &self.address),
            ("-4711", &self.ticket),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11", &self.event),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a12", &self.event_now),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a21", &self.message),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a22", &self.begun),
            ("1780000000", &self.begun_at),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a41", &self.ended),
            ("0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a42", &self.under_way),
            ("2026-01-01T00:00:00Z", &self.window.0),
            ("2026-01-02T00:00:00Z", &self.window.1),
        ]
    }
}

/// Where every documented line sends its call.
const ADDRESS: &str = "localhost:50551";

/// A documented line: the method whose comment it stands in, and the arguments of grpcurl.
#[derive(Debug)]
struct Line {
    method: String,
    arguments: String,
}

/// The lines of all RPCs of the contract, in its order. Each RPC has at least one.
fn documented_lines() -> Vec<Line> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let (mut lines, mut bare) = (Vec::new(), Vec::new());
    for file in set.file.iter().filter(|file| file.package() == "holdfast.v1") {
        let locations = &file.source_code_info.as_ref().unwrap().location;
        for (at, service) in (0..).zip(&file.service) {
            for (index, method) in (0..).zip(&service.method) {
                // 6: the file's services; 2: their methods.
                let place = locations.iter().find(|location| location.path == [6, at, 2, index]);
                let comment = place.map(|place| place.leading_comments()).unwrap_or_default();
                let method = format!("holdfast.v1.{}/{}", service.name(), method.name());
                let before = lines.len();
                for line in comment.lines().filter_map(|line| line.trim().strip_prefix("`grpcurl ")) {
                    let arguments = line.strip_suffix('`').unwrap().to_owned();
                    lines.push(Line { method: method.clone(), arguments });
                }
                if lines.len() == before {
                    bare.push(method);
                }
            }
        }
    }
    assert!(bare.is_empty(), "these RPCs have no line `grpcurl …` in their comments: {bare:?}");
    lines
}

#[tokio::test]
async fn every_documented_grpcurl_line_works_as_it_stands() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let begun = event("").id;
    Inbox::of(&scene).process(&begun, lease(60)).await;
    let epoch = "SELECT floor(extract(epoch FROM received_at))::bigint FROM holdfast.event_inbox";
    put_published(&scene.database, 20, "order.placed").await;
    let replays = Replays::of(&scene);
    let ended =
        replays.replay(ReplayRequest { event_type: "order.none".into(), ..everything() }).await.replay_id;
    let under_way = replays.replay(ReplayRequest { max_rate: Some(1), ..everything() }).await.replay_id;
    let window = |seconds: i64| from_now(seconds).to_string();
    let placeholders = Placeholders {
        ended,
        under_way,
        window: (window(-7_200), window(-3_600)),
        message: event("").id,
        begun,
        begun_at: scene.database.one::<i64>(epoch).await.to_string(),
        address: scene.server.address().to_string(),
        ticket: caller.begin_with_ticket().await.to_string(),
        event: event("").id,
        event_now: event("").id,
    };
    let lines = documented_lines();
    for (text, _) in placeholders.table() {
        assert!(lines.iter().any(|line| line.arguments.contains(text)), "no line says {text} any more");
    }

    for Line { method, arguments } in &lines {
        assert!(
            arguments.ends_with(&format!(" {ADDRESS} {method}")),
            "{method} is not what is called: {arguments}"
        );
        let typed =
            placeholders.table().iter().fold(arguments.clone(), |typed, (text, is)| typed.replace(text, is));
        let mut shell = Command::new("sh");
        shell.env("TOKEN", token()).args(["-c", &format!("exec \"$0\" {typed}"), &grpcurl()]);
        output(shell).await.unwrap_or_else(|said| panic!("grpcurl {typed}\n{said}"));
    }

    caller.commit().await;
    scene.consumer.wait_for_ids(&[&placeholders.event, &placeholders.event_now], wait::LONG).await;
    scene.end(22).await;
}

/// These ask no database of a service.
const FROM_MEMORY: [&str; 3] = [
    "holdfast.v1.ControlService/ListServices",
    "holdfast.v1.ControlService/GetService",
    "holdfast.v1.ControlService/ListAdminAudit",
];

#[tokio::test]
async fn every_documented_grpcurl_line_is_refused_while_the_schema_is_not_ours_but_for_what_asks_no_database()
{
    let scene = Scene::builder().set("drain", "schema_check", "\"200ms\"").start().await;
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    scene.logs.expect("the service is not served until it is mended");
    scene.logs.expect(SAID);
    scene.database.run("DROP INDEX holdfast.hold_outcome_decided").await;
    health.does_not_serve("service/orders").await;

    for Line { method, arguments } in documented_lines() {
        let typed = arguments.replace(ADDRESS, &scene.server.address().to_string());
        let mut shell = Command::new("sh");
        shell.env("TOKEN", token()).args(["-c", &format!("exec \"$0\" {typed}"), &grpcurl()]);
        let said = output(shell).await;
        if FROM_MEMORY.contains(&method.as_str()) {
            assert!(said.is_ok(), "{method}: {said:?}");
        } else {
            let Err(said) = said else { panic!("{method} was answered: {said:?}") };
            assert!(said.contains("FailedPrecondition") && said.contains("SCHEMA_DRIFT"), "{method}: {said}");
        }
    }
    scene.end(0).await;
}
