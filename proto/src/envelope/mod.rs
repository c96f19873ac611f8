//! The rules that an event must obey, and the CloudEvents document and content hash that follow from it.
//!
//! Both ends use the same code: the server when it stages, the client when it publishes in the caller's own
//! transaction; so an event is judged and written alike whichever way it comes.
//!
//! ```text
//! v1::Event ──validate──▶ Valid ──envelope_text(source, now)──▶ CloudEvents 1.0 JSON for the jsonb column
//!                └──▶ Invalid: every violation by field path, or the one size that is over its limit
//! ```
//!
//! Guarantees: what [`validate()`] accepts, PostgreSQL's `jsonb` and a strict JSON reader accept; error texts never hold
//! a value of the caller's; no input panics. Pure code: no I/O, and no clock but the one that mints version 7 ids.
//! Not here: whether the service exists, the ticket, the size of the request. Design: sections 2 and 3.

mod compose;
mod hash;
mod json;
mod limits;
mod validate;
mod violation;

#[cfg(test)]
mod tests;

pub use compose::Valid;
pub use limits::{
    HEADER_BYTES, Limits, MAX_CONTENT_TYPE_BYTES, MAX_ENVELOPE_BYTES, MAX_EVENTS, MAX_EXTENSION_NAME_BYTES,
    MAX_JSON_DEPTH, MAX_KEY_BYTES, MAX_NUMBER_DIGITS, MAX_OPERATION_BYTES, MAX_REQUEST_BYTES,
    MAX_SERVICE_BYTES, MAX_TYPE_BYTES,
};
pub use validate::{check_hold, check_operation_id, parse_id, validate};
pub use violation::{
    Invalid, MAX_LISTED, MAX_LISTED_BYTES, MAX_MESSAGE_BYTES, TooLarge, Violation, Violations,
};

/// The control database's own outbox, drained like any service's; callers cannot stage for it.
pub const BUILT_IN_SERVICE: &str = "holdfast-control";

/// Names that no service may have: they would collide with the first word of a scope, or are the server's own.
const RESERVED_SERVICES: [&str; 3] = ["holdfast", "payload", BUILT_IN_SERVICE];

/// What the `source` of every event of a service begins with; the rest is the service's name.
const SOURCE_PREFIX: &str = "/holdfast/";

/// The CloudEvents `source` of a service's events, `/holdfast/<service>`. A relative reference, so that it stays the
/// same when hosts and domains change. Both ends must use this one, and no caller may choose it.
#[must_use]
pub fn source(service: &str) -> String {
    format!("{SOURCE_PREFIX}{service}")
}

/// Whether a name is kept by the server for itself (`holdfast`, `payload`, `holdfast-control`).
#[must_use]
pub fn is_reserved_service(name: &str) -> bool {
    RESERVED_SERVICES.contains(&name)
}

/// What is wrong with a service's name, or `None` if it is `[a-z][a-z0-9-]{0,62}` and not reserved.
///
/// The length is a DNS label's, and there are no dots, because the name is the first word of a scope.
#[must_use]
pub fn service_name_problem(name: &str) -> Option<&'static str> {
    let Some(first) = name.bytes().next() else {
        return Some("must not be empty");
    };
    if name.len() > MAX_SERVICE_BYTES {
        return Some("must be at most 63 bytes");
    }
    if !first.is_ascii_lowercase() {
        return Some("must begin with a lower-case letter a-z");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Some("may contain a-z, 0-9 and - only");
    }
    if is_reserved_service(name) {
        return Some("is a reserved name");
    }
    None
}
