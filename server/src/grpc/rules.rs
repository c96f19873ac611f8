//! What each RPC takes: a closed table. An RPC that is not in it is refused, and a test walks the descriptors.
//!
//! The layer knows a path and no service's name; so it asks who calls, and the scope is proven inside, where the request is
//! read. What is written here is what a test demands of every RPC: without a token UNAUTHENTICATED, without the scope
//! PERMISSION_DENIED naming it.

/// What an RPC takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing, not even a token.
    Open,
    /// A token, whatever it allows.
    Token,
    /// `{service}.write`.
    Write,
    /// `{service}.read`.
    Read,
    /// `{service}.admin`.
    Admin,
    /// `holdfast.admin`; where the request names a service, that one's `{service}.admin` does, too.
    FleetOrAdmin,
}

/// Who may ask what RPCs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reflection {
    /// Whoever has a token.
    #[default]
    Token,
    /// Everybody.
    Open,
    /// Nobody: it is not served.
    Off,
}

/// Every RPC that is served, by path.
pub const RULES: &[(&str, Rule)] = &[
    // Orchestrators have no token, and what they learn is one word.
    ("/grpc.health.v1.Health/Check", Rule::Open),
    ("/grpc.health.v1.Health/Watch", Rule::Open),
    ("/holdfast.v1.OutboxService/StageInTx", Rule::Write),
    ("/holdfast.v1.OutboxService/StageNow", Rule::Write),
    ("/holdfast.v1.OutboxService/ConfirmStaged", Rule::Write),
    ("/holdfast.v1.OutboxService/GetEvent", Rule::Read),
    ("/holdfast.v1.HoldService/ReleaseHeld", Rule::Write),
    ("/holdfast.v1.HoldService/DropHeld", Rule::Write),
    ("/holdfast.v1.HoldService/ListHeld", Rule::Read),
    ("/holdfast.v1.InboxService/BeginConsume", Rule::Write),
    ("/holdfast.v1.InboxService/CompleteConsume", Rule::Write),
    ("/holdfast.v1.InboxService/FailConsume", Rule::Write),
    ("/holdfast.v1.InboxService/SurfaceDeadLetter", Rule::Write),
    ("/holdfast.v1.InboxService/GetConsumption", Rule::Read),
    ("/holdfast.v1.OutboxAdminService/ListPending", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/ListUnresolved", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/ListParked", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/UnparkEvents", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/DiscardEvents", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/RetryNow", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/PauseDrain", Rule::Admin),
    ("/holdfast.v1.OutboxAdminService/ResumeDrain", Rule::Admin),
    ("/holdfast.v1.ReplayService/Replay", Rule::Admin),
    ("/holdfast.v1.ReplayService/GetReplay", Rule::Read),
    ("/holdfast.v1.ReplayService/ListReplays", Rule::Read),
    ("/holdfast.v1.ReplayService/WatchReplay", Rule::Read),
    ("/holdfast.v1.ReplayService/PauseReplay", Rule::Admin),
    ("/holdfast.v1.ReplayService/ResumeReplay", Rule::Admin),
    ("/holdfast.v1.ReplayService/CancelReplay", Rule::Admin),
    ("/holdfast.v1.ReplayService/ListReplayFailures", Rule::Read),
    // Shows what the token may read or operate, and no more.
    ("/holdfast.v1.ControlService/ListServices", Rule::Token),
    ("/holdfast.v1.ControlService/GetService", Rule::Read),
    ("/holdfast.v1.ControlService/ListAdminAudit", Rule::FleetOrAdmin),
];

/// Both versions of it.
const REFLECTION: &str = "/grpc.reflection.";

/// The rule of a path; `None`: nobody has said, so it is refused.
pub(super) fn of(path: &str, reflection: Reflection) -> Option<Rule> {
    if path.starts_with(REFLECTION) {
        return match reflection {
            Reflection::Token => Some(Rule::Token),
            Reflection::Open => Some(Rule::Open),
            Reflection::Off => None,
        };
    }
    RULES.iter().find(|(known, _)| *known == path).map(|(_, rule)| *rule)
}
