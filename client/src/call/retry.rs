//! When a call is sent again, and after how long. Pure.
//!
//! A caller's transaction may be open all the while, so the attempts are few and the waits short.

use std::time::Duration;

use tonic::Code;

use crate::Error;
use crate::rpc::Repeat;

/// Attempts of one call, the first included. With the waits below 0.75 to 1.5 s: a replica's restart behind a balancer,
/// not an outage.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// The first wait's upper end; it doubles.
const BASE: Duration = Duration::from_millis(100);

/// No wait of our own choosing is longer: the caller's locks are held meanwhile.
const CAP: Duration = Duration::from_secs(1);

/// How long to wait before the next attempt; `None`: give the error to the caller.
///
/// `failures`: attempts that failed so far, from 1. `remaining`: until the call's deadline. `jitter`: 0 to 1, so that
/// what failed together does not come back together.
pub(super) fn wait(
    error: &Error,
    repeat: Repeat,
    failures: u32,
    remaining: Duration,
    jitter: f64,
) -> Option<Duration> {
    let may_pass = match error.code() {
        Code::Unavailable => true,
        Code::Aborted => error.retry_after().is_some(),
        _ => error.is_lost_connection(),
    };
    let allowed = match repeat {
        Repeat::Always => true,
        Repeat::IfNotApplied => error.is_certainly_not_applied(),
    };
    if !(may_pass && allowed) || failures >= MAX_ATTEMPTS {
        return None;
    }
    let half = BASE.saturating_mul(1_u32 << failures.saturating_sub(1).min(16)).min(CAP) / 2;
    // What the server asks for is a lower bound.
    let wait = error.retry_after().unwrap_or_default().max(half) + half.mul_f64(jitter.clamp(0.0, 1.0));
    (wait < remaining).then_some(wait)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use holdfast_proto::ERROR_DOMAIN;
    use tonic::{ConnectError, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn wait(error: &Error, failures: u32, remaining: Duration, jitter: f64) -> Option<Duration> {
        super::wait(error, Repeat::Always, failures, remaining, jitter)
    }

    fn plain(code: Code) -> Error {
        Status::new(code, "").into()
    }

    fn told(code: Code, reason: &str, after: Option<Duration>) -> Error {
        let metadata = HashMap::from([("applied".to_owned(), "no".to_owned())]);
        let mut details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata);
        if after.is_some() {
            details.set_retry_info(after);
        }
        Status::with_error_details(code, "", details).into()
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        let second = Some(Duration::from_secs(1));
        assert!(wait(&plain(Code::Unavailable), 1, LONG, 0.5).is_some());
        assert!(wait(&told(Code::Unavailable, "SHUTTING_DOWN", None), 1, LONG, 0.5).is_some());
        assert!(wait(&told(Code::Aborted, "EVENT_CONTENDED", second), 1, LONG, 0.5).is_some());
        assert!(wait(&Status::from_error("reset by peer".into()).into(), 1, LONG, 0.5).is_some());

        assert!(wait(&plain(Code::Aborted), 1, LONG, 0.5).is_none());
        assert!(wait(&Error::deadline_exceeded(), 1, LONG, 0.5).is_none());
        for code in 1..=16 {
            let code = Code::from_i32(code);
            if !matches!(code, Code::Unavailable | Code::Aborted) {
                assert!(wait(&told(code, "X", second), 1, LONG, 0.5).is_none(), "{code:?}");
            }
        }
    }

    #[test]
    fn what_is_not_safe_to_repeat_is_sent_again_only_after_a_sure_no() {
        let again = |error: &Error| super::wait(error, Repeat::IfNotApplied, 1, LONG, 0.5).is_some();
        assert!(again(&told(Code::Unavailable, "OVERLOADED", Some(Duration::from_millis(1)))));
        assert!(again(&Status::from_error(Box::new(ConnectError("refused".into()))).into()));
        assert!(!again(&plain(Code::Unavailable)));
        assert!(!again(&Status::from_error("reset by peer".into()).into()));
        assert!(!again(&told(Code::FailedPrecondition, "TICKET_NOT_OPEN", None)));
    }

    #[test]
    fn the_number_of_attempts_is_bounded() {
        assert!(wait(&plain(Code::Unavailable), MAX_ATTEMPTS - 1, LONG, 0.0).is_some());
        assert!(wait(&plain(Code::Unavailable), MAX_ATTEMPTS, LONG, 0.0).is_none());
        assert!(wait(&plain(Code::Unavailable), u32::MAX, LONG, 0.0).is_none());
    }

    #[test]
    fn the_wait_doubles_and_is_at_least_half_of_its_step() {
        let at = |failures, jitter| wait(&plain(Code::Unavailable), failures, LONG, jitter);
        assert_eq!((at(1, 0.0), at(1, 1.0)), (Some(BASE / 2), Some(BASE)));
        assert_eq!((at(3, 0.0), at(3, 1.0)), (Some(BASE * 2), Some(BASE * 4)));
        assert_eq!(at(1, f64::INFINITY), Some(BASE));
    }

    #[test]
    fn the_server_s_delay_is_a_lower_bound_and_is_jittered_upwards() {
        let second = Duration::from_secs(1);
        let error = told(Code::Unavailable, "OVERLOADED", Some(second));
        assert_eq!(wait(&error, 1, LONG, 0.0), Some(second));
        assert_eq!(wait(&error, 1, LONG, 1.0), Some(second + BASE / 2));
    }

    #[test]
    fn no_wait_reaches_the_deadline() {
        let error = told(Code::Unavailable, "OVERLOADED", Some(Duration::from_secs(1)));
        assert!(wait(&error, 1, Duration::from_millis(999), 0.0).is_none());
        assert!(wait(&error, 1, Duration::ZERO, 0.0).is_none());
        let absurd = told(Code::Unavailable, "OVERLOADED", Some(Duration::MAX / 4));
        assert!(wait(&absurd, 1, LONG, 1.0).is_none());
    }
}
