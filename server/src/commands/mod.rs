//! The commands of the binary, a file each: arguments in, exit code out. Design, section 13.
//!
//! A new command is a variant here, whose fields are its arguments and whose doc comment is its help, and a file with its
//! `run`. What a command prints for people goes to stdout, log lines and failures to stderr.

mod dev;
mod migrate;
mod serve;
mod token;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::config::Config;

/// What `holdfast` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves until SIGTERM or SIGINT. Does not migrate.
    Serve(ConfigFile),
    /// Brings the control database and every service database to this release's schema. Safe to repeat.
    ///
    /// The configuration's accounts must own schema `holdfast` or be allowed to create it.
    Migrate(ConfigFile),
    /// Starts a private PostgreSQL and RabbitMQ and a server on them, plays the main job, and stays until Ctrl-C.
    Dev(dev::Arguments),
    /// Makes keys and signs tokens. Needs no server.
    Token(token::Arguments),
    /// The caller that `dev` kills.
    #[command(hide = true)]
    DevCaller(dev::CallerArguments),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What made it fail, with everything that was being done.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve(file) => serve::run(file.read()?).await,
            Self::Migrate(file) => migrate::run(&file.read()?).await,
            Self::Dev(arguments) => dev::run(arguments).await,
            Self::Token(arguments) => token::run(arguments),
            Self::DevCaller(arguments) => dev::call(arguments).await,
        }
    }
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The TOML configuration file.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: PathBuf,
}

impl ConfigFile {
    fn read(&self) -> anyhow::Result<Config> {
        read(&self.config)
    }
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Config::parse(&text).with_context(|| path.display().to_string())
}
