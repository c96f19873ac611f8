//! A connection that hears notifications: its own, outside of the pool. Notices when it was lost, and when it no longer
//! answers. Does not: come back by itself, or know what it heard while it was away; whoever owns it looks for himself.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::{Error, pool};

/// A `LISTEN` on one channel. Dropped, it says UNLISTEN and is closed; one that hears no answer to that is left to TCP's own
/// patience, a socket and a task of some bytes.
#[derive(Debug)]
pub struct Listener {
    inner: PgListener,
    keepalive: Duration,
    patience: Duration,
}

impl Listener {
    /// Connects and listens. `keepalive`: after so long a silence the server is asked for a sign of life; `patience`: for
    /// which it has so long.
    ///
    /// # Errors
    /// No connection, or no answer, within `patience`.
    pub async fn connect(
        url: &str,
        channel: &str,
        keepalive: Duration,
        patience: Duration,
    ) -> Result<Self, Error> {
        let options = pool::connect_options(url)?
            .application_name("holdfast listener")
            .options([("client_min_messages", "error")]);
        // The library listens on a pool's connection. This pool has one, which is never handed to anybody else.
        let own = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(patience)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(options);
        let listening = async {
            let mut inner = PgListener::connect_with(&own).await?;
            // A lost connection is an answer, not something to be mended behind our back.
            inner.eager_reconnect(false);
            inner.listen(channel).await?;
            Ok(inner)
        };
        let inner = tokio::time::timeout(patience, listening)
            .await
            .unwrap_or_else(|_| Err(Error::limit(patience, false)))?;
        Ok(Self { inner, keepalive, patience })
    }

    /// Waits for a notification. Several that came meanwhile may be heard as one. Cancel-safe.
    ///
    /// # Errors
    /// The connection was lost, or the server no longer answers.
    pub async fn heard(&mut self) -> Result<(), Error> {
        loop {
            match tokio::time::timeout(self.keepalive, self.inner.try_recv()).await {
                Ok(Ok(Some(_))) => {
                    while self.inner.next_buffered().is_some() {}
                    return Ok(());
                }
                Ok(Ok(None)) => {
                    return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into()).into());
                }
                Ok(Err(error)) => return Err(error.into()),
                // Silence, or a connection into nowhere.
                Err(_) => match tokio::time::timeout(self.patience, self.inner.execute("SELECT 1")).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(error.into()),
                    Err(_) => return Err(Error::limit(self.patience, false)),
                },
            }
        }
    }
}
