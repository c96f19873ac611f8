//! `holdfast forget-service`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use super::{ConfigFile, say};
use crate::db::{self, Pool};
use crate::{logging, roster};

/// Arguments of `forget-service`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The service's name. It must not be in the configuration any more.
    name: String,
    #[command(flatten)]
    file: ConfigFile,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { name, file } = arguments;
    let config = file.read()?.config;
    logging::init(config.log_format)?;
    ensure!(
        !config.services.contains_key(&name),
        "{name} is in the configuration: a server that has it would put it on the roster again"
    );
    let control = Pool::new(&db::Options {
        url: config.control.database_url.expose().to_owned(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: Duration::from_secs(5),
    })
    .context("control.database_url")?;
    let known = roster::forget(&control, &name).await.context("the control database")?;
    control.close(Duration::from_secs(1)).await;
    match known {
        Some(known) => {
            say(format_args!("forgotten: {known}. What is in its database stays there."))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            say(format_args!("{name} is not on the roster"))?;
            Ok(ExitCode::FAILURE)
        }
    }
}
