//! Which RPC may be sent again: one table, which the calls of this crate go by.
//!
//! Guarantees: every RPC of the contract is in it (a test walks the descriptor set), so a new one is judged before it can
//! be called. For calls with a generated client of your own it is the documentation.

/// When the very same request may be sent again after an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repeat {
    /// Whatever became of the attempt: the RPC reads, or is a hint, or carries ids by which the server knows the request
    /// again.
    Always,
    /// Only if the attempt surely did nothing ([`crate::Error::is_certainly_not_applied`]).
    IfNotApplied,
}

/// One RPC of the contract.
///
/// ```
/// use holdfast_client::rpc::{self, Repeat};
///
/// let stage = rpc::ALL.iter().find(|rpc| rpc.method() == "StageInTx");
/// assert_eq!(stage.map(|rpc| rpc.repeat()), Some(Repeat::Always));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rpc {
    service: &'static str,
    method: &'static str,
    repeat: Repeat,
}

impl Rpc {
    const fn new(service: &'static str, method: &'static str, repeat: Repeat) -> Self {
        Self { service, method, repeat }
    }

    /// The service's full name, such as `holdfast.v1.OutboxService`.
    #[must_use]
    pub const fn service(&self) -> &'static str {
        self.service
    }

    /// The method's name, such as `GetEvent`.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        self.method
    }

    /// When it may be sent again.
    #[must_use]
    pub const fn repeat(&self) -> Repeat {
        self.repeat
    }
}

const OUTBOX: &str = "holdfast.v1.OutboxService";
const CONTROL: &str = "holdfast.v1.ControlService";

/// Its ids are made before it is first sent: what an earlier attempt has written is answered with `OUTCOME_DUPLICATE`.
pub const STAGE_IN_TX: Rpc = Rpc::new(OUTBOX, "StageInTx", Repeat::Always);
/// As [`STAGE_IN_TX`]. Without ids in the request it would be [`Repeat::IfNotApplied`]; this crate never sends it so.
pub const STAGE_NOW: Rpc = Rpc::new(OUTBOX, "StageNow", Repeat::Always);
/// A hint, which is never believed.
pub const CONFIRM_STAGED: Rpc = Rpc::new(OUTBOX, "ConfirmStaged", Repeat::Always);
/// A look-up.
pub const GET_EVENT: Rpc = Rpc::new(OUTBOX, "GetEvent", Repeat::Always);
/// A look-up.
pub const LIST_SERVICES: Rpc = Rpc::new(CONTROL, "ListServices", Repeat::Always);
/// A look-up.
pub const GET_SERVICE: Rpc = Rpc::new(CONTROL, "GetService", Repeat::Always);
/// A look-up, which is itself written into the audit each time.
pub const LIST_ADMIN_AUDIT: Rpc = Rpc::new(CONTROL, "ListAdminAudit", Repeat::Always);

const HOLDS: &str = "holdfast.v1.HoldService";

/// A decision is final: the second one says that it was taken.
pub const RELEASE_HELD: Rpc = Rpc::new(HOLDS, "ReleaseHeld", Repeat::Always);
/// As [`RELEASE_HELD`].
pub const DROP_HELD: Rpc = Rpc::new(HOLDS, "DropHeld", Repeat::Always);
/// A look-up.
pub const LIST_HELD: Rpc = Rpc::new(HOLDS, "ListHeld", Repeat::Always);

const OUTBOX_ADMIN: &str = "holdfast.v1.OutboxAdminService";

/// A look-up, which is itself written into the audit each time; as are all calls of this service.
pub const LIST_PENDING: Rpc = Rpc::new(OUTBOX_ADMIN, "ListPending", Repeat::Always);
/// As [`LIST_PENDING`].
pub const LIST_UNRESOLVED: Rpc = Rpc::new(OUTBOX_ADMIN, "ListUnresolved", Repeat::Always);
/// As [`LIST_PENDING`].
pub const LIST_PARKED: Rpc = Rpc::new(OUTBOX_ADMIN, "ListParked", Repeat::Always);
/// What was sent off before is not parked any more. With a filter, what was parked again meanwhile is sent off once more.
pub const UNPARK_EVENTS: Rpc = Rpc::new(OUTBOX_ADMIN, "UnparkEvents", Repeat::Always);
/// An attempt that may have been carried out is not repeated by itself: with a filter, a second one would delete what was parked
/// since. With ids it may be.
pub const DISCARD_EVENTS: Rpc = Rpc::new(OUTBOX_ADMIN, "DiscardEvents", Repeat::IfNotApplied);
/// What is due is due.
pub const RETRY_NOW: Rpc = Rpc::new(OUTBOX_ADMIN, "RetryNow", Repeat::Always);
/// The second one finds the first one's pause.
pub const PAUSE_DRAIN: Rpc = Rpc::new(OUTBOX_ADMIN, "PauseDrain", Repeat::Always);
/// As [`PAUSE_DRAIN`].
pub const RESUME_DRAIN: Rpc = Rpc::new(OUTBOX_ADMIN, "ResumeDrain", Repeat::Always);

const INBOX: &str = "holdfast.v1.InboxService";

/// The same ticket, or the same lease's token, is known again.
pub const BEGIN_CONSUME: Rpc = Rpc::new(INBOX, "BeginConsume", Repeat::Always);
/// The generation fences it: what was completed is completed.
pub const COMPLETE_CONSUME: Rpc = Rpc::new(INBOX, "CompleteConsume", Repeat::Always);
/// As [`COMPLETE_CONSUME`]: a start fails once.
pub const FAIL_CONSUME: Rpc = Rpc::new(INBOX, "FailConsume", Repeat::Always);
/// The second letter has the first one's token.
pub const SURFACE_DEAD_LETTER: Rpc = Rpc::new(INBOX, "SurfaceDeadLetter", Repeat::Always);
/// A look-up.
pub const GET_CONSUMPTION: Rpc = Rpc::new(INBOX, "GetConsumption", Repeat::Always);

const REPLAYS: &str = "holdfast.v1.ReplayService";

/// An attempt that may have been carried out is not repeated by itself: without a plan's id it would be a second replay.
pub const REPLAY: Rpc = Rpc::new(REPLAYS, "Replay", Repeat::IfNotApplied);
/// A look-up.
pub const GET_REPLAY: Rpc = Rpc::new(REPLAYS, "GetReplay", Repeat::Always);
/// A look-up.
pub const LIST_REPLAYS: Rpc = Rpc::new(REPLAYS, "ListReplays", Repeat::Always);
/// A look-up, whose answers go on.
pub const WATCH_REPLAY: Rpc = Rpc::new(REPLAYS, "WatchReplay", Repeat::Always);
/// What is paused stays so.
pub const PAUSE_REPLAY: Rpc = Rpc::new(REPLAYS, "PauseReplay", Repeat::Always);
/// What goes on goes on.
pub const RESUME_REPLAY: Rpc = Rpc::new(REPLAYS, "ResumeReplay", Repeat::Always);
/// What is cancelled stays so.
pub const CANCEL_REPLAY: Rpc = Rpc::new(REPLAYS, "CancelReplay", Repeat::Always);
/// A look-up.
pub const LIST_REPLAY_FAILURES: Rpc = Rpc::new(REPLAYS, "ListReplayFailures", Repeat::Always);

/// Every RPC of package `holdfast.v1`.
pub const ALL: &[Rpc] = &[
    STAGE_IN_TX,
    STAGE_NOW,
    CONFIRM_STAGED,
    GET_EVENT,
    LIST_SERVICES,
    GET_SERVICE,
    LIST_ADMIN_AUDIT,
    RELEASE_HELD,
    DROP_HELD,
    LIST_HELD,
    LIST_PENDING,
    LIST_UNRESOLVED,
    LIST_PARKED,
    UNPARK_EVENTS,
    DISCARD_EVENTS,
    RETRY_NOW,
    PAUSE_DRAIN,
    RESUME_DRAIN,
    BEGIN_CONSUME,
    COMPLETE_CONSUME,
    FAIL_CONSUME,
    SURFACE_DEAD_LETTER,
    GET_CONSUMPTION,
    REPLAY,
    GET_REPLAY,
    LIST_REPLAYS,
    WATCH_REPLAY,
    PAUSE_REPLAY,
    RESUME_REPLAY,
    CANCEL_REPLAY,
    LIST_REPLAY_FAILURES,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn every_rpc_of_the_contract_is_judged_and_no_other() -> Result<(), prost::DecodeError> {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)?;
        let contract: BTreeSet<String> = set
            .file
            .iter()
            .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)))
            .flat_map(|(package, service)| {
                let of = move |method: &str| format!("{package}.{}/{method}", service.name());
                service.method.iter().map(move |method| of(method.name()))
            })
            .collect();
        let judged: Vec<String> =
            ALL.iter().map(|rpc| format!("{}/{}", rpc.service(), rpc.method())).collect();
        assert!(contract.len() >= 4, "{contract:?}");
        assert_eq!(contract, judged.iter().cloned().collect::<BTreeSet<_>>());
        assert_eq!(contract.len(), judged.len(), "an RPC is judged twice: {judged:?}");
        Ok(())
    }
}
