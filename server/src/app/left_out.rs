//! Whether the configuration leaves out a service that was served before and may have something left.

use std::time::Duration;

use anyhow::Context;
use tracing::{info, warn};

use super::{ADMIN_GRACE, Absent};
use crate::config::Config;
use crate::db::{self, Pool};
use crate::roster::{self, Known, Told};

/// How long the roster is waited for, which can refuse a start only at the start.
const ROSTER_PATIENCE: Duration = Duration::from_secs(2);

/// What was told of the roster: whether it could be asked, and who is left out all the same.
///
/// # Errors
/// A service is left out that may have something left.
pub(super) async fn nobody_left_out(config: &Config, absent: Absent) -> anyhow::Result<Told> {
    let control = Pool::new(&db::Options {
        url: config.control.database_url.expose().to_owned(),
        max_connections: 1,
        prepared_statements: true,
        acquire_timeout: ROSTER_PATIENCE,
    })
    .context("control.database_url")?;
    let names: Vec<String> = config.services.keys().cloned().collect();
    let asked = async {
        let left: Vec<_> =
            roster::absent(&control, &names).await?.into_iter().filter(Known::has_left).collect();
        // Who is refused changes nothing.
        if left.is_empty() || absent == Absent::Warn {
            roster::meet(&control, &names).await?;
        }
        Ok(left)
    };
    let asked = db::within(ROSTER_PATIENCE, Box::pin(asked)).await;
    let _ = tokio::time::timeout(ADMIN_GRACE, control.close(ADMIN_GRACE)).await;
    let left = match asked {
        Ok(left) => left,
        Err(error) => {
            // Staging and draining need no control database.
            info!(%error, "the roster of services cannot be asked now; services left out are looked for later");
            let mut told = Told::default();
            told.failed(&error);
            return Ok(told);
        }
    };
    if absent == Absent::Warn {
        for one in &left {
            warn!(service.name = %one.name, undelivered = one.undelivered, "{}", roster::LEFT_OUT);
        }
    } else if !left.is_empty() {
        let left: Vec<String> = left.iter().map(ToString::to_string).collect();
        anyhow::bail!(
            "the configuration leaves out what was served before and may have undelivered events, which nobody would drain: {}. \
             Put it back until it is empty, or take it off with `holdfast forget-service NAME`, or start with --force",
            left.join(", ")
        );
    }
    let left_out = left.into_iter().map(|one| one.name).collect();
    Ok(Told { looked: true, left_out, refused: false })
}
