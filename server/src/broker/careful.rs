//! Careful mode: which of many messages does the broker refuse so thoroughly that it closes the channel?
//!
//! A channel error (a routing key that topic permissions forbid, say) takes everything that is open on the channel along and
//! does not tell which message it was for. So after one with several messages open, the next ones go out one at a time, each
//! awaiting its confirm, until as many were judged as had been open: a channel that dies with exactly one message on it
//! convicts that one ([`super::Outcome::Refused`]), and its neighbours go out. Guarantees: nobody is convicted in company.
//! Does not: find a message that is not sent again; it is met like the first time then.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

#[derive(Debug)]
pub(super) struct Careful {
    /// Messages to be judged one at a time.
    left: AtomicUsize,
    one: Semaphore,
    /// Said, in this streak.
    told: AtomicBool,
}

impl Default for Careful {
    fn default() -> Self {
        Self { left: AtomicUsize::new(0), one: Semaphore::new(1), told: AtomicBool::new(false) }
    }
}

impl Careful {
    /// Waits for the turn to publish. `None` outside of careful mode: at once and in any company.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        while self.left.load(Ordering::Acquire) > 0 {
            let turn = self.one.acquire().await.ok()?;
            if self.left.load(Ordering::Acquire) > 0 {
                return Some(turn);
            }
        }
        None
    }

    /// The broker closed a channel with this error and so many messages open.
    pub(super) fn fell(&self, open: usize, error: &str) {
        if open > 1 {
            self.left.fetch_max(open, Ordering::AcqRel);
        }
        if !self.told.swap(true, Ordering::AcqRel) {
            warn!(
                error,
                messages = open,
                "the broker closed a channel over a message; what was on it goes out one at a time until it is found"
            );
        }
    }

    /// A message that had its turn was judged.
    pub(super) fn judged(&self) {
        let less = |left: usize| left.checked_sub(1);
        // Already zero: another one was the last.
        let _ = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// A message was confirmed: outside of careful mode that ends a streak.
    pub(super) fn confirmed(&self) {
        if self.told.load(Ordering::Relaxed) && self.left.load(Ordering::Acquire) == 0 {
            self.told.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn after_a_fall_in_company_messages_go_one_at_a_time_until_as_many_were_judged() {
        let careful = Careful::default();
        assert!(careful.turn().await.is_none());
        careful.fell(2, "403");
        for _ in 0..2 {
            let turn = careful.turn().await;
            assert!(turn.is_some());
            assert!(careful.turn().now_or_never().is_none(), "the next one waits");
            careful.judged();
        }
        assert!(careful.turn().await.is_none());
    }

    #[tokio::test]
    async fn a_message_that_fell_alone_needs_no_care() {
        let careful = Careful::default();
        careful.fell(1, "403");
        assert!(careful.turn().await.is_none());
    }

    #[tokio::test]
    async fn who_waits_when_the_last_one_is_judged_goes_without_a_turn() {
        let careful = Careful::default();
        careful.fell(2, "403");
        careful.judged();
        let turn = careful.turn().await;
        let waiting = careful.turn();
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        careful.judged();
        drop(turn);
        assert!(waiting.await.is_none());
    }
}
