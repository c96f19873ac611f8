//! `holdfast config`.

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

use super::ConfigFile;
use crate::config;

/// What to print.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A file with every setting, its default, its unit, its range and its reason, to start from.
    Default,
    /// What comes of defaults, file and environment: each setting with where it is from; passwords as ***.
    Show(ConfigFile),
}

pub(super) fn run(command: Command) -> anyhow::Result<ExitCode> {
    let text = match command {
        Command::Default => config::DEFAULT.to_owned(),
        Command::Show(file) => file.read()?.to_toml(),
    };
    // Not `print!`, which panics when nobody reads on (`| head`).
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
