//! A connection as every statement of ours sees it: it decides whether statements are prepared by name.
//!
//! A named statement lives in the session of one server connection, where the client expects it the next time; behind a
//! pooler that lends connections by the transaction, the next time is another session. Without names each statement is parsed
//! anew, within the transaction that runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, PgConnection, Postgres, SqlStr};

use super::Pulse;

/// A connection.
#[derive(Debug)]
pub struct Conn {
    held: Held,
    named: bool,
    /// Of the pool it is lent from.
    pulse: Option<Pulse>,
}

/// How many of a pool's connections are in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Loans(Arc<AtomicUsize>);

impl Loans {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) -> Loan {
        self.0.fetch_add(1, Ordering::Relaxed);
        Loan(self.0.clone())
    }
}

/// One of them.
#[derive(Debug)]
struct Loan(Arc<AtomicUsize>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Held {
    Lent { conn: PoolConnection<Postgres>, _counted: Loan },
    Own(Box<PgConnection>),
}

impl Conn {
    pub(super) fn lent(conn: PoolConnection<Postgres>, loans: &Loans, named: bool, pulse: Pulse) -> Self {
        Self { held: Held::Lent { conn, _counted: loans.one_more() }, named, pulse: Some(pulse) }
    }

    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    /// What it just did shows that the database lives and is a primary.
    pub fn beat(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
    }

    pub(super) fn close_on_drop(&mut self) {
        if let Held::Lent { conn, .. } = &mut self.held {
            conn.close_on_drop();
        }
    }

    fn raw(&mut self) -> &mut PgConnection {
        match &mut self.held {
            Held::Lent { conn, .. } => conn,
            Held::Own(conn) => conn,
        }
    }
}

/// For who brings a connection of his own.
impl From<PgConnection> for Conn {
    fn from(conn: PgConnection) -> Self {
        Self { held: Held::Own(Box::new(conn)), named: true, pulse: None }
    }
}

impl<'c> Executor<'c> for &'c mut Conn {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let named = self.named;
        self.raw().fetch_many(Sent { query, named })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let named = self.named;
        self.raw().fetch_optional(Sent { query, named })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        self.raw().prepare_with(sql, parameters)
    }

    // Wanted by the library's `macros` feature.
    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        self.raw().describe(sql)
    }
}

/// A query, with or without a name for its statement.
struct Sent<E> {
    query: E,
    named: bool,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Sent<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.named && self.query.persistent()
    }
}
