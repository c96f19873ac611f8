//! One delivery: attempted until it may be acknowledged, or its session ends.
//!
//! It waits here, unacknowledged, between two attempts: a return to the queue would be counted by the broker, and come back at once.

use std::time::Duration;

use holdfast_proto::v1::{self, ErrorReason};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{debug, info, warn};

use super::attempt::{Step, attempt};
use super::settings::Settings;
use super::{Message, letter};

/// What to tell the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is done with.
    Ack,
    /// It cannot be a dead letter of ours: the broker makes it one.
    Reject,
    /// Nothing: the session ends, and the message comes again.
    Leave,
}

/// What is shared by all deliveries of a consumer.
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// One for each handler that may run.
    pub(super) slots: Semaphore,
    /// The grace time of a stop is over.
    pub(super) hard: CancellationToken,
}

/// `ending`: the session's, or the consumer's.
pub(super) async fn deliver(shared: &Shared, message: &Message, ending: &CancellationToken) -> Verdict {
    let settings = &shared.settings;
    let (mut failures, mut troubles) = (0_u32, 0_u32);
    loop {
        let slot = tokio::select! {
            biased;
            () = ending.cancelled() => return Verdict::Leave,
            slot = shared.slots.acquire() => slot,
        };
        let Ok(slot) = slot else { return Verdict::Leave };
        let mut step = attempt(settings, message, &shared.hard).await;
        drop(slot);
        if let Step::DeadLetter(dead) = step {
            if dead.already_surfaced {
                return Verdict::Ack;
            }
            step = match surface(settings, message, &dead).await {
                Ok(verdict) => return verdict,
                Err(step) => step,
            };
        }
        let wait = match step {
            Step::Ack => return Verdict::Ack,
            Step::Busy(after) => {
                debug!(event.id = %message.id(), ?after, "in somebody else's hands");
                after.max(Duration::from_millis(10))
            }
            Step::Failed | Step::DeadLetter(_) => {
                (failures, troubles) = (failures.saturating_add(1), 0);
                after(settings.backoff, failures)
            }
            Step::Trouble(what) => {
                troubles = troubles.saturating_add(1);
                let queue = settings.queue.as_str();
                // Said once a message and outage.
                if troubles == 1 {
                    warn!(event.id = %message.id(), queue, "a message must wait: {what}");
                } else {
                    debug!(event.id = %message.id(), queue, troubles, "a message still must wait: {what}");
                }
                after(settings.backoff, troubles)
            }
        };
        tokio::select! {
            biased;
            () = ending.cancelled() => return Verdict::Leave,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Publishes a dead letter, or tells what comes instead.
async fn surface(settings: &Settings, message: &Message, dead: &v1::DeadLetter) -> Result<Verdict, Step> {
    let (id, queue) = (message.id(), settings.queue.as_str());
    match settings.inbox.surface_dead_letter(letter::of(message, &dead.token)).await {
        Ok(_) => {
            info!(event.id = %id, queue, cause = dead.cause().as_str_name(), "dead-lettered");
            Ok(Verdict::Ack)
        }
        // Begun again, or another series: whoever begins is told.
        Err(error) if error.reason() == Some(ErrorReason::DeadLetterStale) => Err(Step::Busy(Duration::ZERO)),
        // No letter of the server's can hold it. The queue's own dead-lettering can.
        Err(error) if matches!(error.code(), Code::ResourceExhausted | Code::InvalidArgument) => {
            warn!(event.id = %id, queue, %error, "not to be surfaced; rejected, so that the broker dead-letters it");
            Ok(Verdict::Reject)
        }
        Err(error) => Err(Step::Trouble(format!("it could not be dead-lettered: {error}"))),
    }
}

/// The wait after so many failures in a row: at least half of its step, so that what failed together does not come back together.
pub(super) fn after((first, longest): (Duration, Duration), failures: u32) -> Duration {
    let step = first.saturating_mul(1_u32 << failures.saturating_sub(1).min(31)).min(longest);
    step.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_longest_and_is_at_least_half_of_its_step() {
        let bounds = (Duration::from_secs(1), Duration::from_secs(60));
        for (failures, step) in [(1, 1), (2, 2), (5, 16), (7, 60), (u32::MAX, 60)] {
            let (wait, step) = (after(bounds, failures), Duration::from_secs(step));
            assert!(wait >= step / 2 && wait <= step, "{failures}: {wait:?}");
        }
    }
}
