//! Outcomes that wait to be written down: which, and when. Pure: time is passed in.
//!
//! Confirms come in bursts, and a settle of one row costs as much as one of fifty; so outcomes are written when they are many,
//! when nothing else is on its way, or when a burst has had time to arrive. After a failure they wait, and where the database
//! refuses them they go in halves, down to the one row at fault. Rows that a stranger has locked wait apart, ever longer:
//! neither their neighbours nor a row that must fly alone wait for him.

use std::time::Duration;

use tokio::time::Instant;

use super::flight::Done;
use crate::backoff::Backoff;

/// So many outcomes are written without waiting for more.
const ENOUGH: usize = 500;
const BURST: Duration = Duration::from_millis(5);
const PAUSE: Backoff = Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(2) };

#[derive(Debug)]
pub(super) struct Outcomes {
    waiting: Vec<Done>,
    since: Option<Instant>,
    not_before: Instant,
    /// Failures in a row.
    failures: u32,
    /// Most outcomes of one settle.
    at_most: usize,
    /// Rows that a stranger has locked, and when they are tried again.
    locked: Vec<Done>,
    locked_until: Instant,
    /// Tries in a row that met a lock.
    met_locks: u32,
}

impl Outcomes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: Vec::new(),
            since: None,
            not_before: now,
            failures: 0,
            at_most: usize::MAX,
            locked: Vec::new(),
            locked_until: now,
            met_locks: 0,
        }
    }

    pub(super) fn push(&mut self, now: Instant, done: Done) {
        self.since.get_or_insert(now);
        self.waiting.push(done);
    }

    /// Whether the next settle is a first try.
    pub(super) fn first(&self) -> bool {
        self.failures == 0 && self.met_locks == 0
    }

    /// Rows whose outcome is known and kept from being written by somebody else's lock.
    pub(super) fn locked(&self) -> usize {
        self.locked.len()
    }

    /// When to settle; `unsettled`: rows in flight, those that wait here included.
    pub(super) fn due_at(&self, unsettled: usize) -> Option<Instant> {
        let locked = (!self.locked.is_empty()).then_some(self.locked_until.max(self.not_before));
        let waiting = self.since.map(|since| {
            let on_their_way = unsettled.saturating_sub(self.waiting.len() + self.locked.len());
            let burst = if self.waiting.len() >= ENOUGH || on_their_way == 0 { since } else { since + BURST };
            burst.max(self.not_before)
        });
        [locked, waiting].into_iter().flatten().min()
    }

    /// What to settle now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Done> {
        if now >= self.locked_until {
            self.waiting.append(&mut self.locked);
        }
        let rest = self.waiting.split_off(self.waiting.len().min(self.at_most));
        let batch = std::mem::replace(&mut self.waiting, rest);
        self.since = if self.waiting.is_empty() { None } else { Some(now) };
        batch
    }

    /// A settle went through, but for these.
    pub(super) fn settled(&mut self, now: Instant, locked: Vec<Done>) {
        self.failures = 0;
        self.at_most = self.at_most.saturating_mul(2);
        if locked.is_empty() {
            if self.locked.is_empty() {
                self.met_locks = 0;
            }
            return;
        }
        self.met_locks = self.met_locks.saturating_add(1);
        self.locked_until = now + PAUSE.after(self.met_locks);
        self.locked.extend(locked);
    }

    /// A settle failed. `refused`: the database does not take one of these. Hands back the row that is at fault, if that is known.
    pub(super) fn failed(&mut self, now: Instant, mut batch: Vec<Done>, refused: bool) -> Option<Done> {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + PAUSE.after(self.failures);
        let at_fault = if refused && batch.len() == 1 { batch.pop() } else { None };
        if refused && batch.len() > 1 {
            self.at_most = batch.len().div_ceil(2);
        }
        if !batch.is_empty() {
            self.since.get_or_insert(now);
            batch.append(&mut self.waiting);
            self.waiting = batch;
        }
        at_fault
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::flight::End;
    use super::*;

    fn done(n: u128) -> Done {
        let end = End::Published;
        Done { id: Uuid::from_u128(n), batch: 1, generation: 1, attempts: 0, keyed: false, end }
    }

    fn outcomes(now: Instant, n: u128) -> Outcomes {
        let mut outcomes = Outcomes::new(now);
        (0..n).for_each(|n| outcomes.push(now, done(n)));
        outcomes
    }

    #[test]
    fn outcomes_wait_for_a_burst_only_while_others_are_on_their_way() {
        let now = Instant::now();
        let outcomes = outcomes(now, 3);
        assert_eq!(outcomes.due_at(10), Some(now + BURST));
        assert_eq!(outcomes.due_at(3), Some(now));
        assert_eq!(Outcomes::new(now).due_at(10), None);
    }

    #[test]
    fn many_outcomes_do_not_wait() {
        let now = Instant::now();
        assert_eq!(outcomes(now, ENOUGH as u128).due_at(10_000), Some(now));
    }

    #[test]
    fn what_the_database_refuses_is_halved_down_to_the_row_at_fault() {
        let now = Instant::now();
        let mut outcomes = outcomes(now, 5);
        let mut sizes = Vec::new();
        let at_fault = loop {
            let batch = outcomes.take(now);
            sizes.push(batch.len());
            if let Some(row) = outcomes.failed(now, batch, true) {
                break row;
            }
        };
        assert_eq!(sizes, [5, 3, 2, 1]);
        assert_eq!(at_fault.id, done(0).id);
        assert_eq!(outcomes.take(now).len(), 1, "the others are still there");
    }

    #[test]
    fn locked_rows_wait_apart_and_ever_longer_and_do_not_keep_others_waiting() {
        let mut now = Instant::now();
        let mut outcomes = outcomes(now, 1);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let batch = outcomes.take(now);
            assert_eq!(batch.len(), 1);
            outcomes.settled(now, batch);
            assert_eq!(outcomes.locked(), 1);
            outcomes.push(now, done(9));
            assert_eq!(outcomes.due_at(2), Some(now), "another one is settled at once");
            let other = outcomes.take(now);
            assert_eq!(other.len(), 1);
            outcomes.settled(now, Vec::new());
            let again = outcomes.due_at(1).unwrap_or(now);
            waits.push(again - now);
            now = again;
        }
        assert!(waits[7] > waits[0] * 4 && waits[7] <= PAUSE.cap, "{waits:?}");
    }
}
