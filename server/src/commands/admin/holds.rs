//! `holds`, `release` and `drop`: the operations that events wait for, and their decisions.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1::hold_service_client::HoldServiceClient;
use holdfast_proto::v1::{DropHeldRequest, Hold, ListHeldRequest, ReleaseHeldRequest};

use super::output::{Column, Show};
use super::session::{FAILED, Session, Trouble};

/// `holds`.
#[derive(Debug, Args)]
pub(super) struct List {
    /// The service whose events are held.
    service: String,
    /// Only this operation.
    #[arg(long)]
    operation: Option<String>,
}

/// `release` and `drop`.
#[derive(Debug, Args)]
pub(super) struct Decide {
    /// The service whose events are held.
    service: String,
    /// The operation.
    operation: String,
    /// Its generation; another one is another hold.
    generation: i64,
}

const HOLDS: &[Column] = &[
    ("OPERATION", "hold.operationId", Show::Plain),
    ("GENERATION", "hold.generation", Show::Plain),
    ("HELD", "held", Show::Plain),
    ("UNRESOLVED", "unresolved", Show::Plain),
    ("OLDEST", "oldestCreatedAt", Show::Plain),
    ("DECIDED", "outcome", Show::Word("HOLD_OUTCOME_")),
];

const RELEASED: &[Column] = &[
    ("released", "released", Show::Plain),
    ("decided before", "decidedBefore", Show::YesNo),
    ("complete", "complete", Show::YesNo),
];

const DROPPED: &[Column] = &[
    ("dropped", "dropped", Show::Plain),
    ("decided before", "decidedBefore", Show::YesNo),
    ("complete", "complete", Show::YesNo),
];

impl List {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |page_token, page_size: u32| {
            let request = ListHeldRequest {
                service: self.service.clone(),
                operation_id: self.operation.clone().unwrap_or_default(),
                page_size: page_size.cast_signed(),
                page_token,
            };
            let mut client = HoldServiceClient::new(session.transport.clone());
            let page = session.ask(request, |request| client.list_held(request)).await?;
            Ok((page.operations, page.next_page_token))
        };
        session.list(HOLDS, ask).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Decide {
    fn hold(&self) -> Option<Hold> {
        Some(Hold { operation_id: self.operation.clone(), generation: self.generation })
    }

    pub(super) async fn release(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = HoldServiceClient::new(session.transport.clone());
        let request = ReleaseHeldRequest { hold: self.hold(), service: self.service };
        let answer = session.ask(request, |request| client.release_held(request)).await?;
        session.show(&answer, RELEASED)?;
        if answer.released == 0 && !answer.decided_before {
            eprintln!("{NOBODY_HELD}");
        }
        Ok(done(answer.complete))
    }

    pub(super) async fn drop(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = HoldServiceClient::new(session.transport.clone());
        let request = DropHeldRequest { hold: self.hold(), service: self.service };
        let answer = session.ask(request, |request| client.drop_held(request)).await?;
        session.show(&answer, DROPPED)?;
        if answer.dropped == 0 && !answer.decided_before {
            eprintln!("{NOBODY_HELD}");
        }
        Ok(done(answer.complete))
    }
}

/// Right for a decision that is quicker than the last stage, and a surprise for who mistyped.
const NOBODY_HELD: &str = "holdfast: nothing was held under this operation and generation; what is staged with it later follows this decision";

/// The decision stands; `complete` = false says that events are left, for another call or for the server.
fn done(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}
