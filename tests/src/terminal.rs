//! A terminal: `holdfast admin …`, the real binary, with a token in the environment as runbooks have it.

use std::{net::SocketAddr, process::Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::{auth, scene::SERVICE, server::binary, wait};

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// What is for people or programs.
    pub out: String,
    /// What went wrong, and hints.
    pub err: String,
}

impl Said {
    /// The documents of `--json`.
    ///
    /// # Panics
    /// When a line is none.
    pub fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

/// Somebody with a token.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// HOST:PORT, or with a scheme.
    pub address: String,
    token: Option<String>,
}

impl Terminal {
    /// With every scope of the scenes' service.
    pub fn at(address: SocketAddr) -> Self {
        Self::with_token(address, &auth::token_of("olga", &auth::all_of(SERVICE)))
    }

    /// With this token.
    pub fn with_token(address: SocketAddr, token: &str) -> Self {
        Self { address: address.to_string(), token: Some(token.to_owned()) }
    }

    /// With none.
    pub fn nobody(address: SocketAddr) -> Self {
        Self { address: address.to_string(), token: None }
    }

    /// What is in the environment.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let token = self.token.clone().map(|token| ("HOLDFAST_TOKEN", token));
        [("HOLDFAST_ADDRESS", self.address.clone())].into_iter().chain(token).collect()
    }

    /// `holdfast COMMAND ARGUMENTS` with the address and the token in the environment, and nothing else of this run's.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOLDFAST_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables());
        command
    }

    /// `holdfast admin ARGUMENTS`.
    ///
    /// # Panics
    /// When it cannot be run, does not end, or is killed.
    pub async fn admin(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(&["admin"]);
        run(command.args(arguments)).await
    }

    /// The same, which must exit with 0; what it printed.
    ///
    /// # Panics
    /// As [`Terminal::admin`], and when it does not.
    pub async fn does(&self, arguments: &[&str]) -> String {
        let said = self.admin(arguments).await;
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said.out
    }

    /// The documents of the same with `--json`.
    ///
    /// # Panics
    /// As [`Terminal::does`].
    pub async fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let said = self.admin(&[arguments, &["--json"]].concat()).await;
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said.json()
    }
}

/// Runs a command to its end.
///
/// # Panics
/// As [`Terminal::admin`].
pub async fn run(command: &mut Command) -> Said {
    let output =
        tokio::time::timeout(wait::LONG, command.output()).await.expect("an end").expect("a command");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    Said { code: output.status.code().expect("an exit code"), out, err }
}
