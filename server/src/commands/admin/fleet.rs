//! `services` and `audit`: how the fleet fares, and who did what to it.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1::control_service_client::ControlServiceClient;
use holdfast_proto::v1::{
    GetServiceRequest, ListAdminAuditRequest, ListServicesRequest, ServiceSummary, StateDepth,
};
use prost_types::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::output::{Column, Show};
use super::session::{Session, Trouble};

/// `services`.
#[derive(Debug, Args)]
pub(super) struct Services {
    /// Tells more of this one.
    service: Option<String>,
}

/// `audit`.
#[derive(Debug, Args)]
pub(super) struct Audit {
    /// Only about this service. Must be given to who has no `holdfast.admin`.
    service: Option<String>,
    /// Only of this caller (`sub` of the token).
    #[arg(long)]
    sub: Option<String>,
    /// Only calls of this RPC, such as `DiscardEvents`.
    #[arg(long)]
    verb: Option<String>,
    /// Not before this time, such as 2026-01-31T08:00:00Z.
    #[arg(long, value_parser = time)]
    from: Option<Timestamp>,
    /// Before this time.
    #[arg(long, value_parser = time)]
    to: Option<Timestamp>,
}

/// A time with its zone, as RFC 3339 writes it.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|_| "must be a time with its zone, such as 2026-01-31T08:00:00Z".to_owned())?;
    // Nanoseconds of a second are below a thousand million.
    Ok(Timestamp { seconds: time.unix_timestamp(), nanos: time.nanosecond().cast_signed() })
}

const SUMMARY: &[Column] = &[
    ("SERVICE", "name", Show::Plain),
    ("SERVING", "health.serving", Show::YesNo),
    ("PAUSED", "drainPaused", Show::YesNo),
    ("WHY NOT", "health.why", Show::Plain),
];

const SERVICE: &[Column] = &[
    ("service", "name", Show::Plain),
    ("serving", "health.serving", Show::YesNo),
    ("why not", "health.why", Show::Plain),
    ("drain paused by", "drainPause.by", Show::Plain),
    ("paused since", "drainPause.since", Show::Plain),
    ("paused because", "drainPause.reason", Show::Plain),
    ("unroutable", "settings.unroutable", Show::Plain),
    ("unroutable blocks", "settings.unroutableBlocks", Show::YesNo),
    ("parked blocks", "settings.parkedBlocks", Show::YesNo),
    ("wake", "settings.wake", Show::Plain),
    ("connections", "settings.maxConnections", Show::Plain),
    ("in flight here", "inHand.inFlight", Show::Plain),
    ("open tickets", "inHand.unresolvedTickets", Show::Plain),
    ("oldest ticket", "inHand.unresolvedOldestSeconds", Show::Seconds),
    ("measured at", "outbox.measuredAt", Show::Plain),
    ("rows are estimates", "outbox.estimated", Show::YesNo),
    ("beyond grace", "outbox.beyondGrace", Show::Plain),
    ("keys blocked", "outbox.keysBlocked", Show::Plain),
];

const STATES: &[Column] = &[
    ("STATE", "state", Show::Plain),
    ("ROWS", "rows", Show::Plain),
    ("OLDEST", "oldestSeconds", Show::Seconds),
];

const AUDIT: &[Column] = &[
    ("ID", "id", Show::Plain),
    ("AT", "at", Show::Plain),
    ("SUB", "sub", Show::Plain),
    ("SERVICE", "service", Show::Plain),
    ("VERB", "verb", Show::Plain),
    ("OUTCOME", "outcome", Show::Word("ADMIN_OUTCOME_")),
    ("WHY", "why", Show::Plain),
    ("ARGUMENTS", "arguments", Show::Plain),
    ("COUNTS", "counts", Show::Plain),
];

impl Services {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = ControlServiceClient::new(session.transport.clone());
        match self.service {
            None => {
                let answer =
                    session.ask(ListServicesRequest {}, |request| client.list_services(request)).await?;
                session.rows::<ServiceSummary>(&answer.services, SUMMARY)?;
            }
            Some(service) => {
                let request = GetServiceRequest { service };
                let answer = session.ask(request, |request| client.get_service(request)).await?;
                session.show(&answer, SERVICE)?;
                if let Some(outbox) = answer.outbox.filter(|_| !session.json) {
                    session.rows::<StateDepth>(&outbox.states, STATES)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Audit {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |page_token, page_size| {
            let request = ListAdminAuditRequest {
                service: self.service.clone().unwrap_or_default(),
                sub: self.sub.clone().unwrap_or_default(),
                verb: self.verb.clone().unwrap_or_default(),
                from: self.from,
                to: self.to,
                page_size,
                page_token,
            };
            let mut client = ControlServiceClient::new(session.transport.clone());
            let page = session.ask(request, |request| client.list_admin_audit(request)).await?;
            Ok((page.calls, page.next_page_token))
        };
        session.list(AUDIT, ask).await?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_zone() {
        assert_eq!(time("1970-01-01T01:00:00.5+01:00"), Ok(Timestamp { seconds: 0, nanos: 500_000_000 }));
        assert!(time("2026-01-31").is_err() && time("2026-01-31T08:00:00").is_err());
    }
}
