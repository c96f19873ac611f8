//! `StageInTx` and `StageNow`: phase 1, and what they answer (design, sections 2, 3 and 11; pitfalls, "PostgreSQL and sqlx").

use holdfast_tests::{
    client::Client,
    wait::{self, LONG},
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

mod away;
mod cancelled;
pub(crate) mod gate;
mod group;
mod lone;
mod now;
mod roles;
mod rules;
mod same_id;
mod schema;
mod sizes;
mod values;

/// Code and reason of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    (status.code(), reason)
}

/// Waits until an event is not there (any more).
pub(crate) async fn gone(client: &Client, id: &str) {
    wait::until(&format!("event {id} to be gone"), LONG, || async {
        match client.get(id).await {
            Err(status) if status.code() == Code::NotFound => Ok(()),
            other => Err(other.map(|event| event.why)),
        }
    })
    .await;
}
