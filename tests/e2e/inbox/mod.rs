//! The inbox: messages that take effect once (design, section 6; section 15, invariant 11).
#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

use holdfast_proto::v1::Consumption;
use holdfast_tests::{inbox::Inbox, wait};
use tonic::Status;
use tonic_types::StatusExt as _;
use uuid::Uuid;

mod crash;
mod ends;
mod kept;
mod killed;
mod lease;
mod lost;
mod plans;
mod races;
mod refused;
mod surface;
mod ticket;

/// A message's id.
pub(crate) fn id() -> String {
    Uuid::now_v7().to_string()
}

/// The reason, and what the metadata say of the write.
pub(crate) fn reason(status: &Status) -> (String, String) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no reason: {status:?}"));
    (info.reason.clone(), info.metadata["applied"].clone())
}

/// Waits until a message's row is as it is wanted.
pub(crate) async fn becomes(
    inbox: &Inbox,
    id: &str,
    what: &str,
    wanted: impl Fn(&Consumption) -> bool,
) -> Consumption {
    wait::until(what, wait::LONG, || async {
        let seen = inbox.get(id).await;
        if wanted(&seen) { Ok(seen) } else { Err(seen) }
    })
    .await
}
