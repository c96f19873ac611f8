//! The worker: looks, and shuts and opens one database's gate.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{Drift, Of, look};
use crate::db::{self, Kind, Pool};
use crate::metrics;

/// How a schema is watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often to look; zero: never. Jittered by a tenth.
    pub interval: Duration,
    /// The same while the gate is shut, or nobody could look: whoever mends it waits for this.
    pub soon: Duration,
    /// A breaking difference is looked at again after this, before it counts: a look may meet a migration in the middle.
    pub confirm: Duration,
    /// No smell is followed earlier than this after a look.
    pub between: Duration,
    /// Most time for one look.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(300),
            soon: Duration::from_secs(12),
            confirm: Duration::from_millis(500),
            between: Duration::from_secs(2),
            limit: Duration::from_secs(10),
        }
    }
}

/// So many failures in a row that are not the database's being away are worth a line.
const FAILURES: u32 = 5;

/// Watches one database's schema.
pub struct Watch {
    service: String,
    pool: Pool,
    of: Of,
    options: Options,
    metrics: metrics::Schema,
    looked: bool,
    /// A look said breaking, and none has said yet that it was mistaken.
    doubtful: bool,
    failures: u32,
    additive: Vec<String>,
}

impl Watch {
    /// Over this pool's database. From now on its gate is awaited, unless looking is switched off.
    pub fn new(service: String, pool: Pool, of: Of, options: Options, metrics: metrics::Schema) -> Self {
        if options.interval.is_zero() {
            info!(service.name = %service, "schemas are not looked at (drain.schema_check = 0s)");
        } else {
            pool.gate().await_first_look();
        }
        Self {
            service,
            pool,
            of,
            options,
            metrics,
            looked: false,
            doubtful: false,
            failures: 0,
            additive: Vec::new(),
        }
    }

    /// Works until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if self.options.interval.is_zero() {
            return;
        }
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.look_and_wait() => {}
            }
        }
    }

    async fn look_and_wait(&mut self) {
        let pause = match self.run_once().await {
            Ok(_) if self.pool.gate().is_open() => self.options.interval,
            Ok(_) => self.options.soon.min(self.options.interval),
            // Right after the start calls are let through unseen: not for long.
            Err(_) if !self.looked => Duration::from_secs(1).min(self.options.interval),
            Err(_) => self.options.soon.min(self.options.interval),
        };
        let next = Instant::now() + pause.mul_f64(rand::random_range(0.9..1.1));
        let gate = self.pool.gate();
        let smelled = async {
            tokio::time::sleep(self.options.between).await;
            gate.smelled().await;
        };
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            // Shut, it is looked at soon anyhow.
            () = smelled, if gate.is_open() => debug!(service.name = %self.service, "a statement failed; looking at the schema"),
        }
    }

    /// Looks once, and acts on it.
    ///
    /// # Errors
    /// The database's: then what was known stands.
    pub async fn run_once(&mut self) -> Result<Drift, db::Error> {
        let seen = self.look().await;
        match &seen {
            Ok(drift) => {
                self.looked = true;
                self.doubtful = false;
                self.failures = 0;
                self.metrics.looked(drift.breaking.len(), drift.additive.len());
                self.tell(drift);
            }
            Err(error) => {
                // One that is awaited stays so if what was seen of its schema was breaking.
                if !self.doubtful {
                    self.pool.gate().unknown();
                }
                let away = matches!(error.kind, Kind::Unavailable | Kind::TimedOut | Kind::ReadOnly);
                self.failures = if away { 0 } else { self.failures.saturating_add(1) };
                if self.failures == FAILURES {
                    warn!(service.name = %self.service, %error, "the database's schema cannot be looked at; what was known of it stands");
                } else {
                    debug!(service.name = %self.service, %error, "a look at a schema failed");
                }
            }
        }
        seen
    }

    async fn look(&mut self) -> Result<Drift, db::Error> {
        let drift = look(&self.pool, self.of, self.options.limit).await?;
        if drift.breaking.is_empty() || self.pool.gate().refusal().is_some() {
            return Ok(drift);
        }
        self.doubtful = true;
        tokio::time::sleep(self.options.confirm).await;
        look(&self.pool, self.of, self.options.limit).await
    }

    fn tell(&mut self, drift: &Drift) {
        let gate = self.pool.gate();
        let was = gate.refusal();
        if drift.breaking.is_empty() {
            gate.open();
            if was.is_some() {
                info!(service.name = %self.service, "the database's schema is one that this release works with again; the service is served");
            }
        } else {
            let differences = Drift::summary(&drift.breaking);
            // Not each time: the gate's watchers would wake for nothing.
            if was.as_deref() != Some(differences.as_str()) {
                gate.shut(&differences);
            }
            if was.is_none() {
                error!(
                    service.name = %self.service,
                    count = drift.breaking.len(),
                    differences,
                    "the database's schema is not one that this release works with; the service is not served until it is mended"
                );
            }
        }
        if drift.additive != self.additive {
            self.additive.clone_from(&drift.additive);
            if !self.additive.is_empty() {
                warn!(
                    service.name = %self.service,
                    count = self.additive.len(),
                    differences = Drift::summary(&self.additive),
                    "the database's schema has more than this release knows; it works with it"
                );
            }
        }
    }
}
