//! The `holdfast` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use holdfast_server::commands::Command;

/// Event durability: what committed is delivered, what rolled back is not.
#[derive(Parser)]
#[command(name = "holdfast", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(arguments.command.run());
    // Not waited for: a name look-up that hangs blocks its thread for longer than a stop may take.
    runtime.shutdown_background();
    ended.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("holdfast: {error:#}");
    ExitCode::FAILURE
}
