//! What a database error means: one closed table from SQLSTATE to [`Kind`].
//!
//! The text of a server error never leaves this module's `Debug`: it can hold values of rows.

use std::fmt;
use std::sync::Arc;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// What a failed unit of database work means for whoever asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection, a lost connection, a shutdown or an exhausted server: try again later.
    Unavailable,
    /// The unit of work ran into its limit, or a statement into its time-out.
    TimedOut,
    /// 25006: a standby, or a primary that was demoted. The connection must not be used again.
    ReadOnly,
    /// 55P03, 40P01, 40001: somebody else holds what this needs. Nothing was written; try again.
    Contended,
    /// Class 22, 23 or 54: the database refuses the values, or cannot handle their size.
    Refused,
    /// Class 42, 3F, 0A: the schema or the grants are not what this release needs.
    Schema,
    /// Anything else.
    Other,
}

/// An error of a unit of database work. Clones share their cause: a group's failure is told to each of its requests.
#[derive(Debug, Clone)]
pub struct Error {
    /// What it means.
    pub kind: Kind,
    /// The server's SQLSTATE, if it was the server that said no.
    pub sqlstate: Option<String>,
    /// Whether the commit had been sent when it failed: then the write may have happened.
    pub commit_sent: bool,
    detail: Detail,
}

#[derive(Debug, Clone)]
enum Detail {
    Sqlx(Arc<sqlx::Error>),
    Limit(std::time::Duration),
    /// The work panicked.
    Panic,
    /// It reads, and its answers are of the past.
    Standby,
    /// The connection was inside of a transaction that somebody had left open.
    Stray,
}

impl Error {
    pub(super) fn limit(limit: std::time::Duration, commit_sent: bool) -> Self {
        Self { kind: Kind::TimedOut, sqlstate: None, commit_sent, detail: Detail::Limit(limit) }
    }

    /// For work that panicked: its transaction is rolled back with its connection, or its commit was under way.
    pub fn panicked() -> Self {
        Self { kind: Kind::Other, sqlstate: None, commit_sent: true, detail: Detail::Panic }
    }

    /// For a read that found itself on a standby.
    pub fn standby() -> Self {
        Self { kind: Kind::ReadOnly, sqlstate: None, commit_sent: false, detail: Detail::Standby }
    }

    /// For a lone statement that found itself inside of a transaction, and has written nothing.
    pub fn stray() -> Self {
        Self { kind: Kind::Unavailable, sqlstate: None, commit_sent: false, detail: Detail::Stray }
    }

    pub(super) fn commit(error: sqlx::Error) -> Self {
        let answered = matches!(error, sqlx::Error::Database(_));
        // An error that the server itself sent for the COMMIT is a decided no; a lost reply is not.
        Self { commit_sent: !answered, ..Self::from(error) }
    }

    /// Of a statement that commits by itself.
    pub(super) fn autocommitted(self) -> Self {
        let commit_sent = match &self.detail {
            // What the server says of the statement is a decided no. What ends the session may come after the commit, and
            // what cannot be read is no answer.
            Detail::Sqlx(error) => !error
                .as_database_error()
                .and_then(|e| e.try_downcast_ref::<PgDatabaseError>())
                .is_some_and(|e| !matches!(e.severity(), PgSeverity::Fatal | PgSeverity::Panic)),
            _ => self.commit_sent,
        };
        Self { commit_sent, ..self }
    }

    /// Of a second attempt at what may have happened at the first.
    #[must_use]
    pub fn after(self, first: &Self) -> Self {
        Self { commit_sent: self.commit_sent || first.commit_sent, ..self }
    }

    /// Whether it failed for a reason that another connection need not share.
    pub fn another_connection_may_do(&self) -> bool {
        // 25P02: somebody left it in a transaction that had failed.
        matches!(self.kind, Kind::Unavailable | Kind::ReadOnly) || self.sqlstate.as_deref() == Some("25P02")
    }

    /// Whether the write of this unit of work surely did not happen.
    pub fn certainly_not_applied(&self) -> bool {
        !self.commit_sent
    }

    /// Whether the connection that saw this error may be used again.
    pub(super) fn spoils_connection(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::TimedOut | Kind::ReadOnly)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let sqlstate = error.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned());
        let kind = match (&error, sqlstate.as_deref()) {
            (_, Some(code)) => kind_of(code),
            (sqlx::Error::PoolTimedOut, _) => Kind::Unavailable,
            (
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolClosed,
                _,
            ) => Kind::Unavailable,
            (sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed, _) => Kind::Unavailable,
            _ => Kind::Other,
        };
        Self { kind, sqlstate, commit_sent: false, detail: Detail::Sqlx(Arc::new(error)) }
    }
}

/// The table. Codes: PostgreSQL documentation, appendix A.
fn kind_of(sqlstate: &str) -> Kind {
    match sqlstate {
        "25006" => Kind::ReadOnly,
        "55P03" | "40P01" | "40001" => Kind::Contended,
        // query_canceled (statement_timeout), idle_in_transaction_session_timeout, transaction_timeout.
        "57014" | "25P03" | "25P04" => Kind::TimedOut,
        // A failed authorisation and a missing database are repaired by an operator, not by a caller: retry later.
        code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") => {
            Kind::Unavailable
        }
        code if code.starts_with("28") || code == "3D000" => Kind::Unavailable,
        code if code.starts_with("22") || code.starts_with("23") || code.starts_with("54") => Kind::Refused,
        code if code.starts_with("42") || code.starts_with("3F") || code.starts_with("0A") => Kind::Schema,
        _ => Kind::Other,
    }
}

/// What most often is behind it, for whoever must mend it. Constants: a server's own text can hold values of rows.
fn hint(sqlstate: &str, kind: Kind) -> String {
    match sqlstate {
        "42P01" | "3F000" | "42703" | "42883" => {
            "schema holdfast is missing or old: run `holdfast migrate`".into()
        }
        "42501" => "a grant is missing: run deploy/postgres/roles.sql in this database".into(),
        "28000" | "28P01" => "the login was refused".into(),
        "3D000" => "there is no such database".into(),
        "53300" => "it has no connection left".into(),
        _ => format!("{kind:?}"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.detail, &self.sqlstate) {
            (Detail::Limit(limit), _) => write!(f, "no answer from the database within {limit:?}"),
            (Detail::Stray, _) => f.write_str("the database connection was inside of a transaction"),
            (Detail::Standby, _) => f.write_str("the database is a standby"),
            (Detail::Panic, _) => f.write_str("a fault of ours: the work panicked"),
            (_, Some(code)) => write!(f, "the database answered SQLSTATE {code} ({})", hint(code, self.kind)),
            (Detail::Sqlx(error), _) => match error.as_ref() {
                sqlx::Error::PoolTimedOut => f.write_str("no database connection became free in time"),
                // The operating system's words or the resolver's: a host, a port, no row.
                sqlx::Error::Io(e) => write!(f, "the database connection failed: {e}"),
                _ => write!(f, "the database connection failed ({:?})", self.kind),
            },
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sqlstate_that_we_act_on_has_its_kind() {
        for (code, kind) in [
            ("25006", Kind::ReadOnly),
            ("55P03", Kind::Contended),
            ("40P01", Kind::Contended),
            ("57014", Kind::TimedOut),
            ("57P01", Kind::Unavailable),
            ("57P03", Kind::Unavailable),
            ("53300", Kind::Unavailable),
            ("08006", Kind::Unavailable),
            ("22P05", Kind::Refused),
            ("23505", Kind::Refused),
            ("42P01", Kind::Schema),
            ("XX000", Kind::Other),
        ] {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }

    #[test]
    fn a_lost_answer_to_a_lone_statement_is_not_certainly_unapplied() {
        let lost = Error::from(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()));
        assert!(!lost.autocommitted().certainly_not_applied());
        assert!(Error::stray().autocommitted().certainly_not_applied());
    }

    #[test]
    fn a_lost_commit_reply_is_not_certainly_unapplied() {
        let lost = Error::commit(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()));
        assert!(!lost.certainly_not_applied());
    }
}
