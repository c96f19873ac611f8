//! A write that is one statement and so its own transaction: one round trip instead of three.
//!
//! Nothing is left to the database's or role's defaults all the same: what a BEGIN would name, the pool's connections bring
//! along when they connect ([`session`]), or the statement sets for its own transaction (`synchronous_commit`, the lock
//! time-out). Behind a pooler, where connections bring nothing along, it is a [`Tx`] around the same statement.
//! Guarantees: an error tells whether the write may have happened; dropped unfinished, it takes its connection with it.
//! Does not: try again.

use super::{Begin, Conn, Error, Pool, Tx};

/// A time-out that never ends a lone statement, and that every [`Begin`] names otherwise: where a session has another one it
/// is inside of a transaction that somebody left open, and what is written there would vanish.
const MARK: &str = "30s";

/// What a session of ours has from its first moment on; stronger than defaults of the server, the database and the role.
pub(super) fn session() -> [(&'static str, &'static str); 6] {
    [
        // Nothing a server notices is worth a line of ours.
        ("client_min_messages", "error"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        // Half of what a unit of work may take: it is told what was too long, and can still do it in pieces.
        ("statement_timeout", "10s"),
        // Only for the locks of planning, before a statement can set its own: somebody alters the table.
        ("lock_timeout", "5s"),
        ("idle_in_transaction_session_timeout", MARK),
    ]
}

/// A connection for one statement that writes.
#[derive(Debug)]
pub struct Lone {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Autocommit(Guarded),
    Begun(Tx),
}

/// Dropped with its connection in it, it closes that.
#[derive(Debug)]
struct Guarded(Option<Conn>);

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(mut conn) = self.0.take() {
            conn.close_on_drop();
        }
    }
}

impl Pool {
    /// A connection for one statement that writes. In autocommit, or, where sessions are not ours alone, in a transaction
    /// of the kind given; the statement itself sets what else distinguishes the kinds.
    ///
    /// # Errors
    /// No connection in time.
    pub async fn lone(&self, kind: Begin) -> Result<Lone, Error> {
        if self.is_named() {
            Ok(Lone { way: Way::Autocommit(Guarded(Some(self.acquire().await?))) })
        } else {
            self.begin(kind).await.map(Lone::from)
        }
    }
}

/// The same statement in a transaction that says what it is.
impl From<Tx> for Lone {
    fn from(tx: Tx) -> Self {
        Self { way: Way::Begun(tx) }
    }
}

impl Lone {
    /// The connection, for one statement.
    #[expect(clippy::expect_used, reason = "the connection is taken only by the method that consumes this")]
    pub fn conn(&mut self) -> &mut Conn {
        match &mut self.way {
            Way::Autocommit(conn) => conn.0.as_mut().expect("an unfinished statement has its connection"),
            Way::Begun(tx) => tx.conn(),
        }
    }

    /// Whether the statement commits by itself.
    pub fn is_autocommit(&self) -> bool {
        matches!(self.way, Way::Autocommit(_))
    }

    /// In autocommit: the `idle_in_transaction_session_timeout` of a session that was not left inside of a transaction.
    pub fn session_mark(&self) -> Option<&'static str> {
        self.is_autocommit().then_some(MARK)
    }

    /// Gives the connection back, unless the statement's error spoils it.
    ///
    /// # Errors
    /// The statement's own; [`Error::certainly_not_applied`] tells whether it may have been committed.
    pub async fn finish<T>(self, work: Result<T, Error>) -> Result<T, Error> {
        match self.way {
            Way::Autocommit(mut conn) => {
                let work = work.map_err(Error::autocommitted);
                if !work.as_ref().is_err_and(|e| e.spoils_connection() || !e.certainly_not_applied()) {
                    let conn = conn.0.take();
                    if work.is_ok() {
                        conn.inspect(Conn::beat);
                    }
                }
                work
            }
            Way::Begun(tx) => tx.finish(work).await,
        }
    }
}
