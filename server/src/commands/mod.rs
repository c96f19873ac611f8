//! The commands of the binary, a file each: arguments in, exit code out. Design, section 13.
//!
//! A new command is a variant here, whose fields are its arguments and whose doc comment is its help, and a file with its
//! `run`. What a command prints for people goes to stdout, log lines and failures to stderr.

mod admin;
mod check;
mod config;
mod dev;
mod forget_service;
mod migrate;
mod probe;
mod schema;
mod serve;
mod server;
mod token;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::config::Effective;

/// What `holdfast` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves until SIGTERM or SIGINT. Does not migrate.
    ///
    /// Refuses a configuration that leaves out a service which was served before and may have undelivered events.
    Serve(serve::Arguments),
    /// Brings the control database and every service database to this release's schema. Safe to repeat.
    ///
    /// The configuration's accounts must own schema `holdfast` or be allowed to create it.
    Migrate(ConfigFile),
    /// Asks every database and the broker whether all is as `serve` needs it. Changes nothing.
    ///
    /// One line an answer: ok, warn or FAIL, and what to do. Exit code 0 unless something is a FAIL.
    Check(check::Arguments),
    /// Takes a service that is not configured any more off the roster, whatever is left in its database.
    ForgetService(forget_service::Arguments),
    /// Prints what this release expects a database's schema to look like, a line a thing, with the definitions of indexes.
    Schema(schema::Arguments),
    /// Prints the configuration: all there is to set, or what comes of file and environment.
    #[command(subcommand)]
    Config(config::Command),
    /// Starts a private PostgreSQL and RabbitMQ and a server on them, plays the main job, and stays until Ctrl-C.
    Dev(dev::Arguments),
    /// Makes keys and signs tokens. Needs no server.
    Token(token::Arguments),
    /// Asks a running server for its health: exit code 0 if the component serves, 1 if not, 2 for a wrong question.
    Probe(probe::Probe),
    /// What an operator does at three in the morning: asks a running server what is stuck and why, and mends it.
    ///
    /// Exit code 0: done. 1: not done, or not all of it. 2: a wrong question. 3: not allowed. With auth.keys on the server
    /// a token is needed: `holdfast token mint` makes one; HOLDFAST_TOKEN or --token-file hands it over.
    Admin(admin::Arguments),
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
            Self::Serve(arguments) => serve::run(arguments).await,
            Self::Migrate(file) => migrate::run(&file.read()?.config).await,
            Self::Check(arguments) => check::run(arguments).await,
            Self::ForgetService(arguments) => forget_service::run(arguments).await,
            Self::Schema(arguments) => schema::run(&arguments),
            Self::Config(command) => config::run(command),
            Self::Dev(arguments) => dev::run(arguments).await,
            Self::Token(arguments) => token::run(arguments),
            Self::Probe(probe) => Ok(probe::run(probe).await),
            Self::Admin(arguments) => admin::run(arguments).await,
            Self::DevCaller(arguments) => dev::call(arguments).await,
        }
    }
}

/// A line for people. Not `println!`, which panics when nobody reads on (`| head`).
fn say(line: impl Display) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The TOML configuration file; without one, the environment (`HOLDFAST_CONTROL__DATABASE_URL`, …) must say everything.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// The file with this process's environment over it, validated.
    fn read(&self) -> anyhow::Result<Effective> {
        let (text, place) = self.text()?;
        Effective::of(&text, std::env::vars_os()).context(place)
    }

    /// The same with everything that only a server needs.
    fn read_for_serving(&self) -> anyhow::Result<Effective> {
        let (text, place) = self.text()?;
        Effective::for_serving(&text, std::env::vars_os()).context(place)
    }

    /// The file's text, and what to call it.
    fn text(&self) -> anyhow::Result<(String, String)> {
        let Some(path) = &self.config else {
            return Ok((String::new(), "the environment, without a file (--config names one)".to_owned()));
        };
        let place = path.display().to_string();
        Ok((std::fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?, place))
    }
}
