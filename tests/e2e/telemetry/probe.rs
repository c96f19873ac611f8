//! `holdfast probe`, as a container's health check runs it: one line, and an exit code.

use std::{process::Stdio, time::Duration};

use holdfast_tests::{health::Health, scene::Scene, server::binary, wait};
use tokio::{net::TcpListener, process::Command};

/// Runs it; its exit code and what it printed.
async fn probe(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(binary());
    command.arg("probe").args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(wait::LONG, command.output()).await.unwrap().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn said(code: i32, line: &str) -> (i32, String) {
    (code, format!("{line}\n"))
}

#[tokio::test]
async fn it_exits_with_0_for_what_serves_and_with_1_for_what_does_not() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    crate::drain::expect_broker_trouble(&scene);
    let address = scene.server.address().to_string();
    let health = Health::of(scene.server.address());
    for component in ["readiness", "broker", "service/orders"] {
        health.serves(component).await;
    }

    assert_eq!(probe(&["--address", &address]).await, said(0, "readiness: SERVING"));
    let url = format!("http://{address}");
    assert_eq!(probe(&["--address", &url, "--component", ""]).await, said(0, "\"\": SERVING"));
    let of_service = ["--address", &address, "--component", "service/orders"];
    assert_eq!(probe(&of_service).await, said(0, "service/orders: SERVING"));

    scene.broker_proxy().away().await;
    health.does_not_serve("broker").await;
    assert_eq!(
        probe(&["--address", &address, "--component", "broker"]).await,
        said(1, "broker: NOT_SERVING")
    );
    scene.broker_proxy().pass().await;
    scene.end(0).await;
}

#[tokio::test]
async fn it_exits_with_1_where_nobody_listens_and_where_nobody_answers_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, line) = probe(&["--address", &address, "--timeout", "300ms"]).await;
    assert_eq!(
        (code, line),
        said(1, &format!("readiness: no answer within {:?}", Duration::from_millis(300)))
    );
    drop(silent);

    let (code, line) = probe(&["--address", &address]).await;

    assert_eq!((code, line), said(1, "readiness: no connection: Connection refused (os error 111)"));
}

#[tokio::test]
async fn it_exits_with_2_for_a_wrong_question() {
    let scene = Scene::start().await;
    let address = scene.server.address().to_string();

    let (code, line) = probe(&["--address", &address, "--component", "service/billing"]).await;
    assert_eq!((code, line), said(2, "service/billing: the server knows no such component"));
    for wrong in [["--address", "nowhere"], ["--timeout", "0s"], ["--colour", "red"]] {
        assert_eq!(probe(&wrong).await.0, 2, "{wrong:?}");
    }
    scene.end(0).await;
}
