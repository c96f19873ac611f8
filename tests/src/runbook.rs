//! The runbooks of `deploy/runbooks` and the guides of `docs`, run as they stand: each block of commands by its name, in a shell of its
//! own, with the variables that the reader is asked to set.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    process::Stdio,
};

use tokio::process::Command;

use crate::{
    server::binary,
    terminal::{Said, Terminal, run},
};

/// Where `./x test` says that grpcurl is.
pub const GRPCURL: &str = "HOLDFAST_TEST_GRPCURL";

/// A runbook and its reader.
#[derive(Debug)]
pub struct Runbook {
    name: String,
    /// Named blocks.
    blocks: BTreeMap<String, String>,
    ran: BTreeSet<String>,
    terminal: Terminal,
    variables: BTreeMap<String, String>,
}

impl Runbook {
    /// Reads a runbook, for this terminal. All its blocks are commands.
    ///
    /// # Panics
    /// When there is none of this name, or a block of it has no name or another one's.
    pub fn of(name: &str, terminal: Terminal) -> Self {
        Self::read("../deploy/runbooks", name, terminal, &[])
    }

    /// Reads a guide of `docs`, which may show code and configuration beside.
    ///
    /// # Panics
    /// As [`Runbook::of`].
    pub fn guide(name: &str, terminal: Terminal) -> Self {
        Self::read("../docs", name, terminal, &["rust", "toml"])
    }

    fn read(folder: &str, name: &str, terminal: Terminal, shown: &[&str]) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
        let text = fs::read_to_string(&path).expect("the document");
        let mut blocks = BTreeMap::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```") else { continue };
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            if shown.iter().any(|language| info.split([',', ' ']).next() == Some(language)) {
                continue;
            }
            let name = info
                .strip_prefix("sh ")
                .unwrap_or_else(|| panic!("{path:?}: a block without a name: {line}"));
            let twice = blocks.insert(name.to_owned(), block.join("\n"));
            assert_eq!(twice, None, "{path:?}: {name}");
        }
        Self { name: name.to_owned(), blocks, ran: BTreeSet::new(), terminal, variables: BTreeMap::new() }
    }

    /// Sets a variable, as the reader does.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.insert(name.to_owned(), value.into());
    }

    /// Goes on with another server.
    pub fn at(&mut self, terminal: Terminal) {
        self.terminal = terminal;
    }

    /// Runs a block.
    ///
    /// # Panics
    /// When there is none of this name.
    pub async fn run(&mut self, block: &str) -> Said {
        let script = self.blocks.get(block).unwrap_or_else(|| panic!("{}: no block {block}", self.name));
        self.ran.insert(block.to_owned());
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).stdin(Stdio::null()).kill_on_drop(true);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("HOLDFAST_") {
                command.env_remove(name);
            }
        }
        let mut programs = binary().parent().expect("a folder").display().to_string();
        if let Some(folder) = env::var_os(GRPCURL).as_deref().map(Path::new).and_then(Path::parent) {
            programs = format!("{programs}:{}", folder.display());
        }
        let path = env::var("PATH").expect("PATH");
        // The programs of the PostgreSQL that is tested on, where it is not the machine's.
        let servers = env::var("HOLDFAST_PG_BIN").map(|folder| format!("{folder}:")).unwrap_or_default();
        command.env("PATH", format!("{programs}:{servers}{path}"));
        command.envs(self.terminal.variables()).envs(&self.variables);
        run(&mut command).await
    }

    /// Runs a block, which must end well; what it printed.
    ///
    /// # Panics
    /// As [`Runbook::run`], and when it does not.
    pub async fn does(&mut self, block: &str) -> String {
        let said = self.run(block).await;
        assert_eq!(said.code, 0, "{}: {block}: {said:?}", self.name);
        said.out
    }

    /// Every block was run.
    ///
    /// # Panics
    /// When one was not.
    pub fn is_done(self) {
        let left: Vec<_> = self.blocks.keys().filter(|name| !self.ran.contains(*name)).collect();
        assert!(left.is_empty(), "{}: nobody has run {left:?}", self.name);
    }
}
