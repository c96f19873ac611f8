//! How long to pause after publishes were lost while the broker looked well: the channel is the trouble then, an exchange
//! that is missing say. Pure: time is passed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

const PAUSE: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(10) };

#[derive(Debug, Default)]
pub(super) struct Losses {
    in_a_row: u32,
    until: Option<Instant>,
}

impl Losses {
    /// A publish was lost; no pass before the instant returned. A channel takes all that was on it along: what is lost
    /// within the pause is the same loss, not one more.
    pub(super) fn lost(&mut self, now: Instant) -> Instant {
        match self.until {
            Some(until) if now < until => until,
            _ => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                let until = now + PAUSE.after(self.in_a_row);
                self.until = Some(until);
                until
            }
        }
    }

    /// A publish was confirmed.
    pub(super) fn over(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_dies_with_a_full_window_is_one_loss() {
        let now = Instant::now();
        let mut losses = Losses::default();
        let first = losses.lost(now);
        for _ in 0..1_000 {
            assert_eq!(losses.lost(now), first);
        }
        assert!(first - now <= PAUSE.base);
    }

    #[test]
    fn losses_after_the_pause_make_it_longer_and_a_confirm_ends_it() {
        let mut now = Instant::now();
        let mut losses = Losses::default();
        for _ in 0..10 {
            now = losses.lost(now);
        }
        assert!(losses.lost(now) - now >= PAUSE.cap / 2);
        losses.over();
        assert!(losses.lost(now) - now <= PAUSE.base);
    }
}
