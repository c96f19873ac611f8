//! What a call fails with: the server's `google.rpc` details as plain values.
//!
//! Guarantees: [`Error::is_certainly_not_applied`] is true only where for every attempt the server said so, did not let
//! the caller in, or was never sent anything; whatever is unclear (a lost connection, a deadline, a proxy's answer) counts
//! as "may have been written".

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use holdfast_proto::ERROR_DOMAIN;
use holdfast_proto::envelope::{TooLarge, Violation};
use holdfast_proto::v1::ErrorReason;
use tonic::{Code, Status, TimeoutExpired};
use tonic_types::StatusExt as _;

use crate::connection::is_unconnected;
use crate::token::TokenError;

/// The metadata key of the server's `google.rpc.ErrorInfo` that says whether a write may have happened.
const APPLIED: &str = "applied";

/// Why a call to the server failed.
///
/// Source: [`std::error::Error::source`] is the [`tonic::Status`] it was made of; a failure that was found on this side
/// has none.
///
/// ```no_run
/// use holdfast_client::outbox::{EventBuilder, Outbox};
/// use holdfast_client::{Code, Error, v1::ErrorReason};
///
/// # async fn example(outbox: Outbox, event: EventBuilder) {
/// match outbox.stage_now([event]).await {
///     Ok(staged) => println!("{} staged", staged.len()),
///     Err(error) if error.code() == Code::InvalidArgument => {
///         for violation in error.violations() {
///             eprintln!("{}: {}", violation.field, violation.description);
///         }
///     }
///     Err(error) if error.reason() == Some(ErrorReason::TooLarge) => eprintln!("send fewer at once: {error}"),
///     Err(error) if error.is_certainly_not_applied() => {
///         eprintln!("nothing was written; again after {:?}: {error}", error.retry_after());
///     }
///     Err(error) => eprintln!("it may have been written; call again with the same id: {error}"),
/// }
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    message: String,
    reason: Option<ErrorReason>,
    not_applied: bool,
    violations: Vec<Violation>,
    retry_after: Option<Duration>,
    lost_connection: bool,
    unconnected: bool,
    status: Option<Status>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            code: Code::Unknown,
            message: String::new(),
            reason: None,
            not_applied: false,
            violations: Vec::new(),
            retry_after: None,
            lost_connection: false,
            unconnected: false,
            status: None,
        }
    }
}

impl Error {
    /// The gRPC code. `DeadlineExceeded` where the call's own deadline passed, on whichever side that was noticed;
    /// `Unauthenticated` also where there was no access token to send ([`TokenError`] is then among the sources).
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The server's reason, if it gave one: `None` without a `google.rpc.ErrorInfo` of domain `holdfast.v1` (a lost
    /// connection, a proxy), `Some(Unspecified)` for one that this release does not know. Then go by [`Self::code`].
    #[must_use]
    pub fn reason(&self) -> Option<ErrorReason> {
        self.0.reason
    }

    /// What is wrong with the request, by field path such as `events[3].type`; empty unless the code is
    /// `InvalidArgument`. At most 50, the first ones; the message counts all.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// For how long the server asked to wait before the same request is sent again (`google.rpc.RetryInfo`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether this call surely wrote nothing: the server said so, or did not let the caller in, or there was no connection
    /// or no token to send it with. False does not mean that it wrote something: after a lost connection, a deadline, or an
    /// answer that is not Holdfast's, nobody on this side knows. It covers all attempts of the call.
    ///
    /// For a staged event either answer leaves the decision where it was: with your COMMIT or ROLLBACK.
    #[must_use]
    pub fn is_certainly_not_applied(&self) -> bool {
        self.0.not_applied
    }

    /// Whether there was no connection, so that nothing was sent.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.0.unconnected
    }

    /// Whether the call ended on this side because the connection broke or could not be made.
    pub(crate) fn is_lost_connection(&self) -> bool {
        self.0.lost_connection
    }

    /// The same error for a call of which an earlier attempt may have been applied.
    pub(crate) fn after_an_unclear_attempt(mut self) -> Self {
        self.0.not_applied = false;
        self
    }

    /// The deadline passed on this side.
    pub(crate) fn deadline_exceeded() -> Self {
        Self(Box::new(Inner {
            code: Code::DeadlineExceeded,
            message: "the call's deadline passed without an answer".to_owned(),
            ..Inner::default()
        }))
    }

    /// A request that is not sent because it is over the contract's size.
    pub(crate) fn too_large(too_large: &TooLarge) -> Self {
        Self(Box::new(Inner {
            code: Code::ResourceExhausted,
            message: too_large.to_string(),
            reason: Some(ErrorReason::TooLarge),
            not_applied: true,
            ..Inner::default()
        }))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let timed_out = causes(&status).any(|cause| cause.is::<TimeoutExpired>());
        let info = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let said_no =
            info.as_ref().is_some_and(|info| info.metadata.get(APPLIED).is_some_and(|no| no == "no"));
        let token = causes(&status).find_map(|cause| cause.downcast_ref::<TokenError>());
        let unconnected = status.source().is_some_and(is_unconnected);
        let code = match (timed_out, token) {
            (true, _) => Code::DeadlineExceeded,
            (false, Some(_)) => Code::Unauthenticated,
            (false, None) => status.code(),
        };
        let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
        Self(Box::new(Inner {
            code,
            message: token.map_or_else(|| status.message().to_owned(), ToString::to_string),
            reason: info
                .as_ref()
                .map(|info| ErrorReason::from_reason(&info.reason).unwrap_or(ErrorReason::Unspecified)),
            // Who is not let in does nothing.
            not_applied: said_no || unconnected || code == Code::Unauthenticated,
            violations: violations
                .into_iter()
                .map(|violation| Violation { field: violation.field, description: violation.description })
                .collect(),
            retry_after: status.get_details_retry_info().and_then(|info| info.retry_delay),
            // A status that came over the wire has no source; one that was made of a transport's error has it.
            lost_connection: !timed_out && token.is_none() && status.source().is_some(),
            unconnected,
            status: Some(status),
        }))
    }
}

/// The chain of causes of a status.
fn causes(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(status.source(), |cause| (**cause).source())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.code)?;
        if let Some(reason) = self.0.reason {
            write!(f, " ({})", reason.reason())?;
        }
        write!(f, ": {}", self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.0.code)
            .field("reason", &self.0.reason)
            .field("message", &self.0.message)
            .field("certainly_not_applied", &self.0.not_applied)
            .field("violations", &self.0.violations)
            .field("retry_after", &self.0.retry_after)
            .field("cause", &self.0.status.as_ref().and_then(|status| status.source()))
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.status.as_ref().map(|status| status as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn details(reason: &str, domain: &str, applied: &str) -> ErrorDetails {
        let metadata = HashMap::from([(APPLIED.to_owned(), applied.to_owned())]);
        ErrorDetails::with_error_info(reason, domain, metadata)
    }

    fn error(code: Code, details: ErrorDetails) -> Error {
        Status::with_error_details(code, "said", details).into()
    }

    #[test]
    fn every_reason_of_the_contract_is_read_back() {
        for number in 1..=100 {
            let Ok(reason) = ErrorReason::try_from(number) else { continue };
            let error = error(reason.code(), details(reason.reason(), ERROR_DOMAIN, "no"));
            assert_eq!((error.reason(), error.code()), (Some(reason), reason.code()));
            assert!(error.is_certainly_not_applied());
        }
    }

    #[test]
    fn violations_and_the_retry_delay_are_read() {
        let mut sent = details("INVALID_REQUEST", ERROR_DOMAIN, "no");
        sent.add_bad_request_violation("events[3].type", "must not be empty");
        sent.set_retry_info(Some(Duration::from_millis(250)));
        let error = error(Code::InvalidArgument, sent);
        assert_eq!(
            error.violations(),
            [Violation { field: "events[3].type".into(), description: "must not be empty".into() }]
        );
        assert_eq!(error.retry_after(), Some(Duration::from_millis(250)));
        assert_eq!(error.to_string(), "InvalidArgument (INVALID_REQUEST): said");
    }

    #[test]
    fn an_unknown_reason_of_ours_is_unspecified_and_keeps_what_it_says_about_the_write() {
        let error = error(Code::Internal, details("FROM_A_LATER_RELEASE", ERROR_DOMAIN, "no"));
        assert_eq!(error.reason(), Some(ErrorReason::Unspecified));
        assert!(error.is_certainly_not_applied());
    }

    #[test]
    fn only_an_explicit_no_of_our_domain_is_certain() {
        let unclear = [
            error(Code::Unavailable, details("DATABASE_UNAVAILABLE", ERROR_DOMAIN, "unknown")),
            error(Code::Unavailable, details("DATABASE_UNAVAILABLE", ERROR_DOMAIN, "")),
            error(Code::Unavailable, details("DATABASE_UNAVAILABLE", "proxy.example", "no")),
            error(Code::Unavailable, ErrorDetails::with_error_info("INTERNAL", ERROR_DOMAIN, HashMap::new())),
            Status::unavailable("a proxy").into(),
            Status::from_error("the connection broke".into()).into(),
            Error::deadline_exceeded(),
        ];
        for error in unclear {
            assert!(!error.is_certainly_not_applied(), "{error:?}");
        }
    }

    #[test]
    fn a_call_that_was_never_sent_is_certain_and_says_why() {
        let unconnected = Error::from(Status::from_error(Box::new(tonic::ConnectError("refused".into()))));
        assert_eq!(unconnected.code(), Code::Unavailable);
        assert!(unconnected.is_certainly_not_applied() && unconnected.is_unconnected());
        let tokenless = Error::from(Status::from_error(Box::new(TokenError::Empty)));
        assert_eq!(tokenless.code(), Code::Unauthenticated);
        assert!(tokenless.is_certainly_not_applied() && !tokenless.is_lost_connection());
        assert_eq!(tokenless.to_string(), "Unauthenticated: the access token is empty");
        let stranger = Error::from(Status::unauthenticated("a proxy"));
        assert!(stranger.is_certainly_not_applied());
    }

    #[test]
    fn the_library_s_own_time_out_is_a_deadline_and_no_lost_connection() {
        let error = Error::from(Status::from_error(Box::new(TimeoutExpired(()))));
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert!(!error.is_lost_connection());
    }

    #[test]
    fn damaged_details_are_no_details() {
        let status = Status::with_details(Code::Unavailable, "said", vec![0xff, 0xff, 0xff].into());
        let error = Error::from(status);
        assert_eq!((error.reason(), error.is_certainly_not_applied()), (None, false));
    }
}
