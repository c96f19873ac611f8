//! `event`: where one event is, and what became of it at its consumers.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1::GetEventRequest;
use holdfast_proto::v1::outbox_service_client::OutboxServiceClient;

use super::output::{Column, Show};
use super::session::{Session, Trouble};

/// `event`.
#[derive(Debug, Args)]
pub(super) struct Event {
    /// The service that staged it.
    service: String,
    /// Its id.
    id: String,
}

const EVENT: &[Column] = &[
    ("id", "id", Show::Plain),
    ("service", "service", Show::Plain),
    ("type", "type", Show::Plain),
    ("key", "orderingKey", Show::Plain),
    ("state", "state", Show::Word("EVENT_STATE_")),
    ("why", "why", Show::Plain),
    ("hold", "hold.operationId", Show::Plain),
    ("generation", "hold.generation", Show::Plain),
    ("seq", "seq", Show::Plain),
    ("attempts", "attempts", Show::Plain),
    ("last error", "lastError", Show::Plain),
    ("created", "createdAt", Show::Plain),
    ("resolved", "resolvedAt", Show::Plain),
    ("claimed", "claimedAt", Show::Plain),
    ("next attempt", "nextAttemptAt", Show::Plain),
    ("published", "publishedAt", Show::Plain),
];

const CONSUMERS: &[Column] = &[
    ("CONSUMER", "service", Show::Plain),
    ("QUEUE", "consumerQueue", Show::Plain),
    ("STATE", "consumption.state", Show::Word("CONSUMPTION_STATE_")),
    ("STARTS", "consumption.generation", Show::Plain),
    ("ERRORS", "consumption.failures", Show::Plain),
    ("LOST", "consumption.lostStarts", Show::Plain),
    ("PROCESSED", "consumption.processedAt", Show::Plain),
    ("WHY", "consumption.why|neverBegun.why|notAsked.message", Show::Plain),
];

impl Event {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = OutboxServiceClient::new(session.transport.clone());
        let request = GetEventRequest { service: self.service, id: self.id };
        let answer = session.ask(request, |request| client.get_event(request)).await?;
        session.show(&answer, EVENT)?;
        if !session.json && !answer.consumers.is_empty() {
            session.say("")?;
            session.rows(&answer.consumers, CONSUMERS)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
