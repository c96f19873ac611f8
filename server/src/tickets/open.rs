//! How long tickets have been open, as far as this replica has seen. Pure: time is passed in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The tickets that were open at the last walk.
#[derive(Debug, Default)]
pub(super) struct OpenTickets {
    since: HashMap<i64, Instant>,
    warned: bool,
}

impl OpenTickets {
    /// These are open now and no others. Answers for how long the oldest one has been seen to be.
    pub(super) fn update(&mut self, now: Instant, open: &[i64]) -> Duration {
        self.since = open.iter().map(|t| (*t, self.since.get(t).copied().unwrap_or(now))).collect();
        self.since.values().map(|since| now.duration_since(*since)).max().unwrap_or_default()
    }

    /// Once for as long as the oldest one is past the limit.
    pub(super) fn warns_of(&mut self, oldest: Duration, limit: Duration) -> bool {
        let past = oldest >= limit;
        let now = past && !self.warned;
        self.warned = past;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_open_ticket_is_warned_of_once_until_it_ends() {
        let (start, limit) = (Instant::now(), Duration::from_secs(300));
        let mut open = OpenTickets::default();
        let mut warned = Vec::new();
        for (second, tickets) in
            [(0, vec![1]), (200, vec![1, 2]), (301, vec![1, 2]), (400, vec![1, 2]), (401, vec![2])]
        {
            let oldest = open.update(start + Duration::from_secs(second), &tickets);
            warned.push((oldest.as_secs(), open.warns_of(oldest, limit)));
        }
        assert_eq!(warned, [(0, false), (200, false), (301, true), (400, false), (201, false)]);
    }
}
