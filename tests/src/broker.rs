//! What only `rabbitmqctl` can do to a private broker.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::wait::LONG;

/// Runs `rabbitmqctl` for the private broker in `folder`. Takes some seconds.
///
/// # Panics
/// When it fails.
pub async fn control(folder: &Path, arguments: &[&str]) {
    let environment = std::fs::read_to_string(folder.join("env")).expect("the broker's environment");
    // Beside the server's script, past a distribution's wrapper: see `holdfast_server::dev::rabbitmq`.
    let programs = std::env::var_os("HOLDFAST_RABBITMQ_BIN")
        .map_or_else(|| PathBuf::from("/usr/lib/rabbitmq/bin"), PathBuf::from);
    let mut command = Command::new(programs.join("rabbitmqctl"));
    for (name, value) in environment.lines().filter_map(|line| line.split_once('=')) {
        command.env(name, value.trim_matches('\''));
    }
    command.args(arguments).kill_on_drop(true);
    let output = tokio::time::timeout(2 * LONG, command.output()).await;
    let output = output.expect("rabbitmqctl ends").expect("run rabbitmqctl");
    assert!(output.status.success(), "rabbitmqctl {arguments:?}: {output:?}");
}
