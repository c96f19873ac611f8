//! What an [`ErrorReason`] is on the wire: the name in `google.rpc.ErrorInfo.reason` and the gRPC code that goes with it.
//! The comments of `error_reason.proto` are the contract; this is the same table for programs. Design: section 2 and 3.

use tonic::Code;

use crate::v1::ErrorReason;

/// How the enum's value names begin, as the protobuf style asks for; left off on the wire.
const PREFIX: &str = "ERROR_REASON_";

impl ErrorReason {
    /// The text for `google.rpc.ErrorInfo.reason`, such as `TICKET_NOT_OPEN`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        let name = self.as_str_name();
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// The reason that a `google.rpc.ErrorInfo.reason` names, or `None` for one that this release does not know. The
    /// caller has checked that the info's domain is [`crate::ERROR_DOMAIN`].
    #[must_use]
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::from_str_name(&format!("{PREFIX}{reason}"))
    }

    /// The one gRPC status code that goes with this reason; `Unknown` for `Unspecified`, which is never sent.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::Unspecified => Code::Unknown,
            Self::InvalidRequest | Self::TicketMissing | Self::ReservedService => Code::InvalidArgument,
            Self::TicketNotOpen
            | Self::TicketRolledBack
            | Self::HoldDropped
            | Self::HoldAlreadyDecided
            | Self::SchemaDrift
            | Self::ConsumptionStale
            | Self::DeadLetterStale
            | Self::DeadLetterUnroutable
            | Self::TopologyMismatch
            | Self::ReplayBeyondHorizon
            | Self::ReplayState => Code::FailedPrecondition,
            Self::EventConflict => Code::AlreadyExists,
            Self::EventContended
            | Self::HoldContended
            | Self::DrainBusy
            | Self::ConsumptionContended
            | Self::ConsumptionOpen => Code::Aborted,
            Self::TooLarge | Self::TooManyReplays => Code::ResourceExhausted,
            Self::UnknownService | Self::EventNotFound | Self::ConsumptionNotFound | Self::ReplayNotFound => {
                Code::NotFound
            }
            Self::DatabaseUnavailable
            | Self::DatabaseReadOnly
            | Self::AuditUnavailable
            | Self::Overloaded
            | Self::ShuttingDown
            | Self::BrokerUnavailable => Code::Unavailable,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::ScopeMissing | Self::QueueNotConfigured => Code::PermissionDenied,
            Self::Internal => Code::Internal,
        }
    }
}
