//! `holdfast check`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::ConfigFile;
use crate::check::{self, Verdict};
use crate::logging;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    file: ConfigFile,
    /// One JSON object instead of lines: `{"checks": [{"verdict", "subject", "topic", "seen", "advice"}]}`.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let config = arguments.file.read()?.config;
    logging::init(config.log_format)?;
    let report = check::all(&config).await;
    let text = if arguments.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if report.worst() == Verdict::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
