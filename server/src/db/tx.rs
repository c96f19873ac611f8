//! Transactions that say what they are.
//!
//! A database or role may default to REPEATABLE READ, read-only or asynchronous commit; under a repeatable-read default a
//! committed event was seen to be discarded. So nothing is left to defaults: each kind of transaction is one BEGIN that
//! names isolation, access, durability and time limits, in one round trip.

use std::time::Duration;

use futures::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{Either, Executor};

use super::{Conn, Error, Kind};

/// The kinds of transaction there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Rows written for a caller whose own commit comes later in the same log: asynchronous commit loses nothing.
    /// At most nine statements of at most 3 s with pauses of at most 3 s, so that it ends within one minute, whatever
    /// becomes of us: tickets are swept after two.
    Stage,
    /// As [`Begin::Stage`], but nobody's commit comes later: it is flushed whatever the server's default.
    StageNow,
    /// A claim, stamp or verdict: somebody else acts on it, so it is flushed whatever the server's default.
    Durable,
    /// Housekeeping that recovery may forget, because it would only be done again.
    Forgettable,
}

impl Begin {
    /// First whatever was left open is rolled back: a client deadline inside a BEGIN's round trip leaves a transaction that
    /// the client does not know of, and the next borrower's insert would answer Ok and vanish. (ROLLBACK alone, outside of a
    /// transaction, is a warning in the server's log, one for each unit of work.)
    const fn sql(self) -> &'static str {
        match self {
            Self::Stage => {
                "BEGIN;ROLLBACK;BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\
                 SET LOCAL synchronous_commit = off;\
                 SET LOCAL statement_timeout = '3s';\
                 SET LOCAL idle_in_transaction_session_timeout = '3s';\
                 SET LOCAL lock_timeout = '250ms'"
            }
            Self::StageNow => {
                "BEGIN;ROLLBACK;BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\
                 SET LOCAL synchronous_commit = on;\
                 SET LOCAL statement_timeout = '3s';\
                 SET LOCAL idle_in_transaction_session_timeout = '3s';\
                 SET LOCAL lock_timeout = '250ms'"
            }
            Self::Durable => {
                "BEGIN;ROLLBACK;BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\
                 SET LOCAL synchronous_commit = on;\
                 SET LOCAL statement_timeout = '20s';\
                 SET LOCAL idle_in_transaction_session_timeout = '20s';\
                 SET LOCAL lock_timeout = '500ms'"
            }
            Self::Forgettable => {
                "BEGIN;ROLLBACK;BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\
                 SET LOCAL synchronous_commit = off;\
                 SET LOCAL statement_timeout = '20s';\
                 SET LOCAL idle_in_transaction_session_timeout = '20s';\
                 SET LOCAL lock_timeout = '2s'"
            }
        }
    }
}

/// The rows that answer one question.
pub type Answer = Vec<PgRow>;

/// An open transaction on a connection of its own. Dropped unfinished, it takes its connection with it: nobody knows
/// what such a connection was in the middle of.
#[derive(Debug)]
pub struct Tx {
    conn: Option<Conn>,
}

impl Tx {
    pub(super) async fn begin(conn: Conn, kind: Begin) -> Result<Self, Error> {
        let mut tx = Self { conn: Some(conn) };
        match tx.conn().execute(kind.sql()).await {
            Ok(_) => Ok(tx),
            Err(error) => Err(refused_begin(error)),
        }
    }

    pub(super) async fn begin_asking(
        conn: Conn,
        kind: Begin,
        questions: &[String],
    ) -> Result<(Self, Vec<Answer>), Error> {
        let mut tx = Self { conn: Some(conn) };
        let begin = kind.sql();
        let sql = std::iter::once(begin)
            .chain(questions.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(";\n");
        let mut answers = vec![Answer::new()];
        {
            let mut said = tx.conn().fetch_many(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)));
            while let Some(next) = said.try_next().await.map_err(refused_begin)? {
                match (next, answers.last_mut()) {
                    (Either::Right(row), Some(answer)) => answer.push(row),
                    _ => answers.push(Answer::new()),
                }
            }
        }
        // Each statement of the BEGIN has ended, too, and the last answer has begun one that never came.
        let own = begin.split(';').count();
        Ok((tx, answers.into_iter().skip(own).take(questions.len()).collect()))
    }

    /// The connection, inside the transaction.
    #[expect(
        clippy::expect_used,
        reason = "the connection is taken only by methods that consume the transaction"
    )]
    pub fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("an unfinished transaction has its connection")
    }

    /// Commits on `Ok`, rolls back on `Err`.
    ///
    /// # Errors
    /// The work's own, or the commit's: then [`Error::certainly_not_applied`] tells whether it may have happened.
    pub async fn finish<T>(self, work: Result<T, Error>) -> Result<T, Error> {
        match work {
            Ok(value) => self.commit().await.map(|()| value),
            Err(error) => {
                if !error.spoils_connection() {
                    self.rollback().await;
                }
                Err(error)
            }
        }
    }

    /// Commits.
    ///
    /// # Errors
    /// See [`Tx::finish`].
    pub async fn commit(mut self) -> Result<(), Error> {
        // COMMIT of a failed transaction answers ROLLBACK, and Ok to a client that does not look at the tag. All our
        // work propagates its errors, so a transaction that gets here never failed.
        match self.conn().execute("COMMIT").await {
            Ok(_) => {
                // It was begun READ WRITE, so this is a primary.
                self.conn.take().inspect(Conn::beat);
                Ok(())
            }
            Err(error) => Err(Error::commit(error)),
        }
    }

    /// Runs `last`, statements without parameters, and commits, in one round trip. A statement that fails is an error like a
    /// refused COMMIT: nothing was written.
    ///
    /// # Errors
    /// See [`Tx::finish`].
    pub async fn commit_after(mut self, last: &str) -> Result<(), Error> {
        let sql = format!("{last};\nCOMMIT");
        match self.conn().execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await {
            Ok(_) => {
                // It was begun READ WRITE, so this is a primary.
                self.conn.take().inspect(Conn::beat);
                Ok(())
            }
            Err(error) => Err(Error::commit(error)),
        }
    }

    /// Rolls back. A connection that cannot even do that is closed.
    pub async fn rollback(mut self) {
        let rolled_back = matches!(
            tokio::time::timeout(Duration::from_secs(2), self.conn().execute("ROLLBACK")).await,
            Ok(Ok(_))
        );
        if rolled_back {
            self.conn = None;
        }
    }
}

fn refused_begin(error: sqlx::Error) -> Error {
    let mut error = Error::from(error);
    // A standby refuses READ WRITE itself, as a feature it does not have.
    if error.sqlstate.as_deref() == Some("0A000") {
        error.kind = Kind::ReadOnly;
    }
    error
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.close_on_drop();
        }
    }
}

/// A connection for autocommitted reads. Dropped unfinished, it is closed like a [`Tx`]'s.
///
/// A statement without a name is parsed in one exchange and run in the next; between them a pooler must not give the
/// connection to somebody else, so these reads are transactions.
#[derive(Debug)]
pub struct Read {
    conn: Option<Conn>,
}

impl Read {
    pub(super) async fn begin(conn: Conn) -> Result<Self, Error> {
        let mut read = Self { conn: Some(conn) };
        if !read.conn().is_named() {
            read.conn().execute("BEGIN;ROLLBACK;BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY").await?;
        }
        Ok(read)
    }

    /// The connection.
    #[expect(
        clippy::expect_used,
        reason = "the connection is taken only by the method that consumes the read"
    )]
    pub fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("an unfinished read has its connection")
    }

    /// Gives the connection back, unless the work's error spoils it.
    ///
    /// # Errors
    /// The work's own.
    pub async fn finish<T>(mut self, work: Result<T, Error>) -> Result<T, Error> {
        if !work.as_ref().is_err_and(Error::spoils_connection) && self.over().await {
            self.conn = None;
        }
        work
    }

    /// Ends the transaction, if it is one.
    async fn over(&mut self) -> bool {
        self.conn().is_named()
            || matches!(
                tokio::time::timeout(Duration::from_secs(2), self.conn().execute("ROLLBACK")).await,
                Ok(Ok(_))
            )
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.close_on_drop();
        }
    }
}

/// Runs a unit of database work, at most for `limit`. Past it the work is dropped, and a transaction it had open is
/// rolled back by the server when its connection closes.
///
/// # Errors
/// The work's own, or [`Kind::TimedOut`]; the latter is never certainly unapplied.
pub async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(Error::limit(limit, true)))
}
