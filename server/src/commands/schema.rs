//! `holdfast schema`: what this release expects a database's schema `holdfast` to look like, as the drift gate compares it.
//! For whoever has to put back what is missing.

use std::process::ExitCode;

use clap::Args;

use crate::schema::Of;

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Of the control database: with what only that one has.
    #[arg(long)]
    control: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let of = if arguments.control { Of::Control } else { Of::Service };
    for text in of.texts() {
        for line in text.lines() {
            super::say(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
