//! What lies in an outbox and why, and what can be done about it: `pending`, `unresolved`, `parked`, `unpark`, `discard`,
//! `retry`, `pause`, `resume`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args, ValueEnum};
use holdfast_client::{Error, Transport};
use holdfast_proto::v1::outbox_admin_service_client::OutboxAdminServiceClient;
use holdfast_proto::v1::{
    ActedOn, DiscardEventsRequest, ErrorReason, EventFilter, ListParkedRequest, ListPendingRequest,
    ListUnresolvedRequest, PauseDrainRequest, PendingFilter, PendingWhy, ResumeDrainRequest, RetryNowRequest,
    SkipWhy, SkippedEvent, UnparkEventsRequest,
};
use tonic::Status;

use super::output::{Column, Show, harmless};
use super::session::{FAILED, Page, Session, Trouble};

/// `pending`.
#[derive(Debug, Args)]
pub(super) struct Pending {
    /// The service.
    service: String,
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events with this ordering key; empty: those that are deliberately unordered.
    #[arg(long)]
    key: Option<String>,
    /// Only events that wait for this.
    #[arg(long)]
    why: Option<Why>,
}

/// What an unpublished event waits for.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Why {
    /// The end of its transaction.
    Unresolved,
    /// The decision of its operation.
    Held,
    /// An operator.
    Parked,
    /// The outcome of its publisher.
    #[value(alias = "in_flight")]
    InFlight,
    /// A queue.
    Unroutable,
    /// Its next attempt.
    #[value(alias = "backing_off")]
    BackingOff,
    /// An earlier event of its key.
    Behind,
    /// The end of the pause.
    Paused,
    /// Its turn to be taken in hand alone.
    Alone,
    /// Nothing.
    Ready,
}

impl From<Why> for PendingWhy {
    fn from(why: Why) -> Self {
        match why {
            Why::Unresolved => Self::Unresolved,
            Why::Held => Self::Held,
            Why::Parked => Self::Parked,
            Why::InFlight => Self::InFlight,
            Why::Unroutable => Self::Unroutable,
            Why::BackingOff => Self::BackingOff,
            Why::Behind => Self::Behind,
            Why::Paused => Self::Paused,
            Why::Alone => Self::Alone,
            Why::Ready => Self::Ready,
        }
    }
}

/// `unresolved` and `resume`.
#[derive(Debug, Args)]
pub(super) struct OfService {
    /// The service.
    service: String,
}

/// `parked`.
#[derive(Debug, Args)]
pub(super) struct Parked {
    /// The service.
    service: String,
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events with this ordering key; empty: those that are deliberately unordered.
    #[arg(long)]
    key: Option<String>,
}

/// Which events to act on.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Selection {
    /// The service.
    service: String,
    /// These events, by id.
    #[arg(group = "which", conflicts_with_all = ["event_type", "key", "all"])]
    ids: Vec<String>,
    /// Those of this type.
    #[arg(long = "type", value_name = "TYPE", group = "which")]
    event_type: Option<String>,
    /// Those with this ordering key; empty: those that are deliberately unordered.
    #[arg(long, group = "which")]
    key: Option<String>,
    /// All of them.
    #[arg(long, group = "which", conflicts_with_all = ["event_type", "key"])]
    all: bool,
}

/// `discard`.
#[derive(Debug, Args)]
pub(super) struct Discard {
    #[command(flatten)]
    which: Selection,
    /// Why; it goes into the audit.
    #[arg(long)]
    reason: String,
}

/// `pause`.
#[derive(Debug, Args)]
pub(super) struct Pause {
    /// The service.
    service: String,
    /// Why, for whoever finds it paused.
    #[arg(long)]
    reason: String,
}

const PENDING: &[Column] = &[
    ("SEQ", "seq", Show::Plain),
    ("ID", "id", Show::Plain),
    ("TYPE", "type", Show::Plain),
    ("KEY", "orderingKey", Show::Plain),
    ("CREATED", "createdAt", Show::Plain),
    ("WHY", "why", Show::Word("PENDING_WHY_")),
    ("BEHIND", "behind", Show::Plain),
    ("HOLD", "hold.operationId", Show::Plain),
    ("GENERATION", "hold.generation", Show::Plain),
    ("NEXT ATTEMPT", "nextAttemptAt", Show::Plain),
    ("ATTEMPTS", "attempts", Show::Plain),
    ("ERROR", "lastError", Show::Plain),
];

const UNRESOLVED: &[Column] = &[
    ("TICKET", "ticket", Show::Plain),
    ("EVENTS", "events", Show::Plain),
    ("OLDEST", "oldestCreatedAt", Show::Plain),
    ("HOLDER", "holder", Show::Word("TICKET_HOLDER_")),
    ("PID", "pid", Show::Plain),
    ("APPLICATION", "applicationName", Show::Plain),
    ("LOGIN", "login", Show::Plain),
    ("CLIENT", "clientAddress", Show::Plain),
    ("STATE", "state", Show::Plain),
    ("TRANSACTION SINCE", "transactionStartedAt", Show::Plain),
    ("STATEMENT SINCE", "queryStartedAt", Show::Plain),
    ("PREPARED AS", "preparedGid", Show::Plain),
];

const PARKED: &[Column] = &[
    ("SEQ", "seq", Show::Plain),
    ("ID", "id", Show::Plain),
    ("TYPE", "type", Show::Plain),
    ("KEY", "orderingKey", Show::Plain),
    ("PARKED", "parkedAt", Show::Plain),
    ("ATTEMPTS", "attempts", Show::Plain),
    ("DIED", "loneClaims", Show::Plain),
    ("BEHIND IT", "behind", Show::Plain),
    ("REASON", "reason", Show::Plain),
];

const SKIPPED: &[Column] = &[
    ("SKIPPED", "id", Show::Plain),
    ("WHY", "why", Show::Word("SKIP_WHY_")),
    ("BEHIND", "behind", Show::Plain),
];

const PAUSED: &[Column] = &[
    ("paused by", "pause.by", Show::Plain),
    ("since", "pause.since", Show::Plain),
    ("reason", "pause.reason", Show::Plain),
    ("paused before", "pausedBefore", Show::YesNo),
];

const RESUMED: &[Column] = &[
    ("was paused by", "ended.by", Show::Plain),
    ("since", "ended.since", Show::Plain),
    ("reason", "ended.reason", Show::Plain),
];

fn client(session: &Session) -> OutboxAdminServiceClient<Transport> {
    OutboxAdminServiceClient::new(session.transport.clone())
}

impl Pending {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let filter = PendingFilter {
            event_type: self.event_type.unwrap_or_default(),
            ordering_key: self.key,
            why: self.why.map(PendingWhy::from).unwrap_or_default().into(),
        };
        let mut pause = None;
        let ask = async |page_token, page_size: u32| -> Result<Page<_>, Trouble> {
            let filter = Some(filter.clone());
            let page_size = page_size.cast_signed();
            let request = ListPendingRequest { service: self.service.clone(), filter, page_size, page_token };
            let mut client = client(session);
            let page = session.ask(request, |request| client.list_pending(request)).await?;
            pause = page.pause;
            Ok((page.events, page.next_page_token))
        };
        session.list(PENDING, ask).await?;
        if let Some(pause) = pause {
            let said = format!("the drain is paused by {}: {}", pause.by, pause.reason);
            eprintln!("holdfast: {}", harmless(&said));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Parked {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let filter = EventFilter {
            event_type: self.event_type.unwrap_or_default(),
            ordering_key: self.key,
            all: false,
        };
        let ask = async |page_token, page_size: u32| -> Result<Page<_>, Trouble> {
            let filter = Some(filter.clone());
            let page_size = page_size.cast_signed();
            let request = ListParkedRequest { service: self.service.clone(), filter, page_size, page_token };
            let mut client = client(session);
            let page = session.ask(request, |request| client.list_parked(request)).await?;
            Ok((page.events, page.next_page_token))
        };
        session.list(PARKED, ask).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Most tickets that [`OfService::unresolved`] may ask for at once.
const TICKETS: u32 = 100;

impl OfService {
    pub(super) async fn unresolved(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |page_token, page_size: u32| -> Result<Page<_>, Trouble> {
            let page_size = page_size.min(TICKETS).cast_signed();
            let request = ListUnresolvedRequest { service: self.service.clone(), page_size, page_token };
            let mut client = client(session);
            let page = session.ask(request, |request| client.list_unresolved(request)).await?;
            Ok((page.tickets, page.next_page_token))
        };
        session.list(UNRESOLVED, ask).await?;
        Ok(ExitCode::SUCCESS)
    }

    pub(super) async fn resume(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = client(session);
        let request = ResumeDrainRequest { service: self.service };
        let answer = session.ask(request, |request| client.resume_drain(request)).await?;
        session.show(&answer, RESUMED)?;
        if answer.ended.is_none() {
            eprintln!("holdfast: it was not paused");
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Pause {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = client(session);
        let request = PauseDrainRequest { service: self.service, reason: self.reason };
        let answer = session.ask(request, |request| client.pause_drain(request)).await?;
        session.show(&answer, PAUSED)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Selection {
    fn filter(&self) -> Option<EventFilter> {
        self.ids.is_empty().then(|| EventFilter {
            event_type: self.event_type.clone().unwrap_or_default(),
            ordering_key: self.key.clone(),
            all: self.all,
        })
    }

    pub(super) async fn unpark(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |continue_token| {
            let (service, ids, filter) = (self.service.clone(), self.ids.clone(), self.filter());
            let request = UnparkEventsRequest { service, ids, filter, continue_token };
            let mut client = client(session);
            Ok(session.ask(request, |request| client.unpark_events(request)).await?.events)
        };
        act(session, !self.ids.is_empty(), "sent off again", ask).await
    }

    pub(super) async fn retry(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |continue_token| {
            let (service, ids, filter) = (self.service.clone(), self.ids.clone(), self.filter());
            let request = RetryNowRequest { service, ids, filter, continue_token };
            let mut client = client(session);
            Ok(session.ask(request, |request| client.retry_now(request)).await?.events)
        };
        act(session, !self.ids.is_empty(), "made due", ask).await
    }
}

impl Discard {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let Self { which, reason } = self;
        let ask = async |continue_token| {
            let (service, ids, filter) = (which.service.clone(), which.ids.clone(), which.filter());
            let request =
                DiscardEventsRequest { service, ids, filter, continue_token, reason: reason.clone() };
            let mut client = client(session);
            Ok(session.ask(request, |request| client.discard_events(request)).await?.events)
        };
        act(session, !which.ids.is_empty(), "discarded", ask).await
    }
}

/// How long to wait before the same call is sent again: the drain was busy, and nothing was done.
fn busy(status: &Status) -> Option<Duration> {
    let error = Error::from(status.clone());
    let again = error.reason() == Some(ErrorReason::DrainBusy) && error.is_certainly_not_applied();
    again.then(|| error.retry_after()).flatten()
}

/// Calls until all that was asked for was looked at, and tells what each call did: whoever stops it knows how far it came.
async fn act(
    session: &Session,
    by_ids: bool,
    done: &str,
    mut ask: impl AsyncFnMut(String) -> Result<Option<ActedOn>, Trouble>,
) -> Result<ExitCode, Trouble> {
    let (mut token, mut left_alone, mut busy_since) = (String::new(), 0, None);
    loop {
        let answer = match ask(token.clone()).await {
            Err(Trouble::Status(status)) => {
                let since = *busy_since.get_or_insert_with(Instant::now);
                match busy(&status).filter(|_| since.elapsed() < session.timeout) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(status.into()),
                }
                continue;
            }
            other => other?,
        };
        busy_since = None;
        let Some(acted) = answer else {
            return Err(anyhow::anyhow!("the answer says nothing; is the server another release?").into());
        };
        if session.json {
            session.show(&acted, &[])?;
        } else {
            session.say(&format!(
                "{} matched, {} {done}, {} skipped",
                acted.matched, acted.acted, acted.skipped
            ))?;
            if !acted.skipped_events.is_empty() {
                session.rows::<SkippedEvent>(&acted.skipped_events, SKIPPED)?;
            }
            if acted.skipped_events_truncated {
                eprintln!("holdfast: these are the first that were skipped, of {}", acted.skipped);
            }
        }
        // Who names an event wants that one; a filter takes what it finds, but for what somebody was busy with.
        let busy = acted.skipped_counts.iter().filter(|one| one.why() == SkipWhy::Busy);
        left_alone += if by_ids { acted.skipped } else { busy.map(|one| one.events).sum() };
        if acted.complete {
            let all_done = left_alone == 0;
            return Ok(if all_done { ExitCode::SUCCESS } else { ExitCode::from(FAILED) });
        }
        token = acted.continue_token;
    }
}
