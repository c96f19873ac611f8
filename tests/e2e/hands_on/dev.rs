//! `holdfast dev --once`: the main job on private servers, from the real binary (design, section 13).

use std::{process::Stdio, time::Duration};

use holdfast_tests::{folder, server::binary};
use tokio::process::Command;

/// Two servers are started, one of them twice, and a broker's stop is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn heavy_dev_once_plays_the_main_job_and_exits_with_zero() {
    let data = folder::scratch();
    let mut command = Command::new(binary());
    command.args(["dev", "--once", "--data"]).arg(data.path());
    for (name, _) in std::env::vars_os() {
        // What this run exports for its tests is not the configuration of a development session.
        if name.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);

    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();

    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{log}", output.status);
    let held: Vec<&str> = said.lines().filter(|line| line.starts_with("ok  ")).collect();
    let scenes = ["committed", "rolled back", "caller killed", "broker stopped"];
    assert_eq!(held.len(), scenes.len(), "{said}");
    for (line, scene) in held.iter().zip(scenes) {
        assert!(line["ok  ".len()..].starts_with(scene), "{line:?} is about {scene:?}");
    }
}
