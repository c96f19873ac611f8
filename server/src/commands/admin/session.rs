//! One run of `holdfast admin`: the connection, how answers are printed, and what an exit code says.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_client::{Error, Transport};
use prost::{Message, Name};
use tonic::{Code, Request, Response, Status};

use super::output::{self, Column};
use crate::commands::server::no_connection;

/// Nobody answered, or could not do it, or not all of it: try again or look at the server.
pub(super) const FAILED: u8 = 1;
/// The question was wrong: there is no such thing, or it cannot be asked so. As for wrong arguments.
pub(super) const WRONG_QUESTION: u8 = 2;
/// The caller is not known, or may not do this.
pub(super) const NOT_ALLOWED: u8 = 3;

/// Most rows of a page. Each is below the message limit whatever is in the rows: the server ends pages early.
const PAGE: u64 = 500;

/// Why a run did not do what was asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What the server answered, or what became of the way to it.
    Status(Status),
    /// No answer in time.
    Late,
    /// Something on this side.
    Here(anyhow::Error),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Here(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Here(error.into())
    }
}

/// The run.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) transport: Transport,
    pub(super) timeout: Duration,
    pub(super) json: bool,
    /// Most rows of a list; 0: all.
    pub(super) limit: u64,
}

/// A page of a list: its rows, and what asks for the next one; empty: this was the last.
pub(super) type Page<R> = (Vec<R>, String);

impl Session {
    /// Sends one call, once: whoever types commands sees the failure and decides himself.
    pub(super) async fn ask<Q, A, F>(
        &self,
        request: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, Trouble>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(request);
        request.set_timeout(self.timeout);
        match tokio::time::timeout(self.timeout, send(request)).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Trouble::Late),
        }
    }

    /// Prints a line for people.
    pub(super) fn say(&self, line: &str) -> Result<(), Trouble> {
        Ok(output::print(&format!("{line}\n"))?)
    }

    /// Prints a message.
    pub(super) fn show<M: Message + Name>(&self, message: &M, columns: &[Column]) -> Result<(), Trouble> {
        let value = output::json(message)?;
        let text = if self.json { format!("{value}\n") } else { output::record(columns, &value) };
        Ok(output::print(&text)?)
    }

    /// Prints messages that are there already.
    pub(super) fn rows<M: Message + Name>(&self, messages: &[M], columns: &[Column]) -> Result<(), Trouble> {
        let rows = messages.iter().map(output::json).collect::<Result<Vec<_>, _>>()?;
        let text = if self.json {
            rows.iter().map(|row| format!("{row}\n")).collect()
        } else {
            output::table(columns, &rows)
        };
        Ok(output::print(&text)?)
    }

    /// Asks for page after page, and prints what they hold: JSON as it comes, a table at the end. `ask` gets the token and
    /// the size of each page. Says so when there is more than was wanted.
    pub(super) async fn list<R: Message + Name>(
        &self,
        columns: &[Column],
        mut ask: impl AsyncFnMut(String, u32) -> Result<Page<R>, Trouble>,
    ) -> Result<(), Trouble> {
        let most = if self.limit == 0 { u64::MAX } else { self.limit };
        let (mut token, mut seen, mut kept) = (String::new(), 0, Vec::new());
        loop {
            let size = PAGE.min(most - seen);
            let (rows, next) = ask(token, u32::try_from(size).unwrap_or(u32::MAX)).await?;
            seen += rows.len() as u64;
            if self.json {
                self.rows(&rows, columns)?;
            } else {
                kept.extend(rows);
            }
            token = next;
            if token.is_empty() || seen >= most {
                break;
            }
        }
        if !self.json {
            self.rows(&kept, columns)?;
        }
        if !token.is_empty() {
            eprintln!("holdfast: there are more; --limit {} shows the first {0}, --limit 0 all", most * 10);
        }
        Ok(())
    }
}

impl Trouble {
    /// Says it on stderr, and what the exit code says.
    pub(super) fn told(self, timeout: Duration) -> ExitCode {
        let status = match self {
            Self::Here(error) => {
                eprintln!("holdfast: {error:#}");
                return ExitCode::from(FAILED);
            }
            Self::Late => return late(timeout),
            Self::Status(status) => status,
        };
        if let Some(cause) = no_connection(&status) {
            eprintln!("holdfast: no connection, so nothing was done: {}", output::harmless(&cause));
            return ExitCode::from(FAILED);
        }
        let request_id =
            status.metadata().get("x-request-id").and_then(|id| id.to_str().ok()).map(output::harmless);
        let error = Error::from(status);
        let code = match error.code() {
            Code::DeadlineExceeded => return late(timeout),
            Code::InvalidArgument | Code::NotFound | Code::OutOfRange | Code::Unimplemented => WRONG_QUESTION,
            Code::Unauthenticated | Code::PermissionDenied => NOT_ALLOWED,
            _ => FAILED,
        };
        eprintln!("holdfast: {}", output::harmless(&error.to_string()));
        for violation in error.violations() {
            let line = format!("{}: {}", violation.field, violation.description);
            eprintln!("  {}", output::harmless(&line));
        }
        if let Some(after) = error.retry_after() {
            eprintln!("  again after {after:?}");
        }
        if code == FAILED && !error.is_certainly_not_applied() {
            eprintln!("  it may have been done");
        }
        if let Some(id) = request_id {
            eprintln!("  request {id}");
        }
        ExitCode::from(code)
    }
}

fn late(timeout: Duration) -> ExitCode {
    eprintln!("holdfast: no answer within {timeout:?}; what was asked may have been done");
    ExitCode::from(FAILED)
}
