//! `wake = "notify"`: hears that events were put in by SQL, and wakes the drainer at once instead of at its next poll.
//!
//! Never needed for safety: the poll finds whatever was not announced or not heard. So a lost or silent connection is said
//! once, replaced with back-off, and on its return the drainer looks once for what was announced meanwhile.
//! Does not: use the pool's connections, or announce anything (the table does, once `holdfast migrate` has switched it on).
//! Design, section 4, "Wake-up".

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::sql;
use crate::backoff::Backoff;
use crate::db::{self, Conn, Pool};

/// What the table notifies on.
const CHANNEL: &str = "holdfast_outbox";

/// A connection that lived so long was a good one.
const LASTING: Duration = Duration::from_secs(60);

/// Whether new events announce themselves. `false` also where the schema is too old to.
///
/// # Errors
/// There is no outbox, no right to look, or no answer.
pub async fn announces(conn: &mut Conn) -> Result<bool, db::Error> {
    sql::announces(conn).await
}

/// How announcements are heard.
#[derive(Debug, Clone)]
pub struct Options {
    /// The service.
    pub service: String,
    /// Where to listen: the database itself, not a pooler that lends connections by the transaction.
    pub url: String,
    /// After so long a silence the connection is tried.
    pub keepalive: Duration,
    /// For connecting, and for a sign of life.
    pub patience: Duration,
    /// Between two connections.
    pub retry: Backoff,
}

impl Options {
    /// The defaults.
    pub fn new(service: String, url: String) -> Self {
        Self {
            service,
            url,
            // A tenth of a round trip a second; a listener in nowhere costs at most fifteen seconds of polling.
            keepalive: Duration::from_secs(10),
            patience: Duration::from_secs(5),
            retry: Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(10) },
        }
    }
}

/// Hears announcements of one service's outbox.
pub struct Announced {
    pool: Pool,
    options: Options,
    wake: Arc<Notify>,
    /// It was said already that the table announces nothing.
    said_silent: bool,
}

impl Announced {
    /// `wake` is told each time.
    pub fn new(pool: Pool, options: Options, wake: Arc<Notify>) -> Self {
        Self { pool, options, wake, said_silent: false }
    }

    /// Works until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut failures = 0_u32;
        loop {
            let begun = Instant::now();
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                ended = self.listen(failures > 0) => ended,
            };
            let Err(error) = ended;
            // One that is lost as soon as it is made is the same trouble still.
            failures = if begun.elapsed() < LASTING { failures.saturating_add(1) } else { 1 };
            let service = &self.options.service;
            if failures == 1 {
                warn!(service.name = %service, %error, "new events are not announced: not listening; they are polled for");
            } else {
                debug!(service.name = %service, %error, "still not listening");
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.options.retry.after(failures)) => {}
            }
        }
    }

    /// One connection's life; ends only with an error.
    async fn listen(&mut self, again: bool) -> Result<std::convert::Infallible, db::Error> {
        let Options { url, keepalive, patience, .. } = &self.options;
        let mut listener = db::Listener::connect(url, CHANNEL, *keepalive, *patience).await?;
        if again {
            info!(service.name = %self.options.service, "listening again");
        }
        // What was announced while nobody listened.
        self.wake.notify_one();
        if let Err(error) = self.check().await {
            // The pool's trouble, which others report; this connection has none.
            debug!(service.name = %self.options.service, %error, "whether the outbox announces could not be asked");
        }
        loop {
            listener.heard().await?;
            self.wake.notify_one();
        }
    }

    async fn check(&mut self) -> Result<(), db::Error> {
        let announces = db::within(self.options.patience * 2, async {
            let mut read = self.pool.read().await?;
            let answer = sql::announces(read.conn()).await;
            read.finish(answer).await
        })
        .await?;
        if !announces && !self.said_silent {
            self.said_silent = true;
            warn!(
                service.name = %self.options.service,
                "wake = \"notify\", but the outbox announces nothing: run `holdfast migrate` with this configuration"
            );
        }
        Ok(())
    }
}
