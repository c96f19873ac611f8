//! `holdfast admin`: the operator's RPCs as a command line. A client like any other: it goes over the wire, with a token.
//!
//! Guarantees: one call is sent once, and its failure is shown, with the reason, the fields and the request's id; a list says
//! when there is more than it shows; an exit code says what came of it (0 done, 1 not done, or not all of it, 2 a wrong
//! question, 3 not allowed). A new verb is a variant of [`What`] and its line in one of the files beside. Design, section 13.

mod events;
mod fleet;
mod holds;
mod outbox;
mod output;
mod replay;
mod session;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use self::session::{Session, Trouble};
use super::server::{Identity, Server, patience};

/// What to do, and where.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    identity: Identity,
    /// Prints JSON: a document a line, as the contract maps its messages.
    #[arg(long, global = true)]
    json: bool,
    /// Most rows of a list; 0 is all.
    #[arg(long, global = true, default_value_t = 100)]
    limit: u64,
    /// How long to wait for each answer.
    #[arg(long, global = true, default_value = "20s", value_parser = patience)]
    timeout: Duration,
    #[command(subcommand)]
    what: What,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum What {
    /// The services with their health; of one, its settings and what lies in its outbox.
    Services(fleet::Services),
    /// What admins did, the newest first.
    Audit(fleet::Audit),
    /// Where one event is, and why.
    Event(events::Event),
    /// What is not published, and why.
    Pending(outbox::Pending),
    /// The open transactions that events wait for, and who has them.
    Unresolved(outbox::OfService),
    /// What was set aside with evidence.
    Parked(outbox::Parked),
    /// Sends parked events off again.
    Unpark(outbox::Selection),
    /// Deletes parked events for good.
    Discard(outbox::Discard),
    /// Makes events that back off, or wait for a queue, due at once.
    Retry(outbox::Selection),
    /// Stops the publishing of a service's events. Nothing is lost; it waits.
    Pause(outbox::Pause),
    /// Goes on publishing.
    Resume(outbox::OfService),
    /// Sends published events of a window again, after a plan.
    Replay(replay::Replays),
    /// The operations that events wait for.
    Holds(holds::List),
    /// Lets the events of an operation go.
    Release(holds::Decide),
    /// Discards the events of an operation.
    Drop(holds::Decide),
}

/// Does it.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { server, identity, json, limit, timeout, what } = arguments;
    let transport = server.known_as(&identity, timeout)?.transport();
    let session = Session { transport, timeout, json, limit };
    Ok(what.run(&session).await.unwrap_or_else(|trouble: Trouble| trouble.told(timeout)))
}

impl What {
    async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        match self {
            Self::Services(verb) => verb.run(session).await,
            Self::Audit(verb) => verb.run(session).await,
            Self::Event(verb) => verb.run(session).await,
            Self::Pending(verb) => verb.run(session).await,
            Self::Unresolved(verb) => verb.unresolved(session).await,
            Self::Parked(verb) => verb.run(session).await,
            Self::Unpark(verb) => verb.unpark(session).await,
            Self::Discard(verb) => verb.run(session).await,
            Self::Retry(verb) => verb.retry(session).await,
            Self::Pause(verb) => verb.run(session).await,
            Self::Resume(verb) => verb.resume(session).await,
            Self::Replay(verb) => verb.run(session).await,
            Self::Holds(verb) => verb.run(session).await,
            Self::Release(verb) => verb.release(session).await,
            Self::Drop(verb) => verb.drop(session).await,
        }
    }
}
