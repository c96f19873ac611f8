//! The binary's commands, as an operator types them (design, sections 11 and 13).

#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

use std::{ffi::OsStr, path::PathBuf, process::Stdio};

use holdfast_tests::{
    folder,
    server::{ServerConfig, binary},
};
use tempfile::TempDir;
use tokio::process::Command;

mod check;
mod closed_stdout;
mod config;
mod forget_service;
mod migrate;

/// A command, without what this run exports for its tests.
fn holdfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(name);
        }
    }
    command
}

/// A configuration in a file that goes with it.
struct ConfigFile {
    path: PathBuf,
    _folder: TempDir,
}

impl ConfigFile {
    fn of(text: impl AsRef<str>) -> Self {
        let folder = folder::scratch();
        let path = folder.path().join("holdfast.toml");
        std::fs::write(&path, text.as_ref()).unwrap();
        Self { path, _folder: folder }
    }

    fn from(config: &ServerConfig) -> Self {
        Self::of(config.to_toml())
    }

    /// `--config FILE` after the arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = holdfast(arguments);
        command.arg(OsStr::new("--config")).arg(&self.path);
        command
    }
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn run(mut command: Command) -> Said {
    let output = command.output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Said { code: output.status.code(), out, err }
}
