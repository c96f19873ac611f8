//! Commands whose reader is gone (`| head`): no panic, and an exit code that means what it always means.

use std::{io::pipe, process::Stdio};

use holdfast_tests::{folder, scene::Scene};
use tokio::process::Command;

use super::{Said, holdfast, run};

/// Runs it with an output that nobody reads.
async fn unread(mut command: Command) -> Said {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // With the command goes our copy of the write end.
    drop(command);
    let output = child.wait_with_output().await.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("panicked"), "{err}");
    Said { code: output.status.code(), out: String::new(), err }
}

#[tokio::test]
async fn a_probe_answers_by_its_exit_code_also_when_nobody_reads_its_line() {
    let scene = Scene::builder().start().await;
    let address = scene.server.address().to_string();
    let arguments = ["probe", "--address", &address, "--component", "liveness"];
    assert_eq!(run(holdfast(&arguments)).await.code, Some(0));

    let said = unread(holdfast(&arguments)).await;

    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    scene.end(0).await;
}

#[tokio::test]
async fn dev_ends_with_an_error_when_nobody_reads_what_it_shows() {
    let folder = folder::scratch();
    let data = folder.path().join("data");

    let said = unread(holdfast(&["dev", "--once", "--data", data.to_str().unwrap()])).await;

    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("Broken pipe"), "{}", said.err);
}
