//! Who may do what, and what is written down about it (design, sections 8, 12 and 15.10).
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

mod admin_audit;
mod audit;
mod refused;
mod rotation;
mod rules;
mod serving;
mod token;
mod transport;

use tonic::Status;
use tonic_types::StatusExt as _;

/// A failure's reason, and the scope that it says is missing.
fn reason(status: &Status) -> (String, Option<String>) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.metadata.get("applied").map(String::as_str), Some("no"), "{status:?}");
    assert!(info.metadata.contains_key("request_id"), "{status:?}");
    (info.reason, info.metadata.get("scope").cloned())
}
