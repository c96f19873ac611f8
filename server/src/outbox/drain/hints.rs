//! When to ask about which ticket. Pure: time is passed in.
//!
//! A ticket that was staged under is asked after 5, 10, 20 … ms until it is decided; one whose caller says that it has
//! committed, at once. After a second the resolver's walk, which asks every undecided ticket each second, has it anyway and
//! it is forgotten here.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(5);
const LAST: Duration = Duration::from_millis(1_000);
/// A flood of hints must not become memory; what is not kept is found by the walk.
const MOST: usize = 20_000;

#[derive(Debug, Clone, Copy)]
struct Asked {
    at: Instant,
    delay: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    tickets: HashMap<i64, Asked>,
    order: BTreeSet<(Instant, i64)>,
}

impl Schedule {
    /// Events were staged: ask soon.
    pub(super) fn staged(&mut self, now: Instant, ticket: i64) {
        if self.tickets.len() < MOST && !self.tickets.contains_key(&ticket) {
            self.put(ticket, Asked { at: now + FIRST, delay: FIRST });
        }
    }

    /// The caller says that it has committed: ask now.
    pub(super) fn confirmed(&mut self, now: Instant, ticket: i64) {
        if self.tickets.len() < MOST || self.tickets.contains_key(&ticket) {
            self.put(ticket, Asked { at: now, delay: FIRST });
        }
    }

    /// Tickets whose time has come, at most `most`. They stay scheduled as they are until told otherwise.
    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<i64> {
        self.order.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, ticket)| *ticket).collect()
    }

    /// When the next one's time comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Asked, and still open: asked again after twice the time.
    pub(super) fn open(&mut self, now: Instant, tickets: &[i64]) {
        for ticket in tickets {
            let Some(asked) = self.take(*ticket) else { continue };
            let delay = asked.delay * 2;
            if delay <= LAST {
                self.put(*ticket, Asked { at: now + delay, delay });
            }
        }
    }

    /// Not asked after all: they stand.
    pub(super) fn stands(&mut self, now: Instant, tickets: &[i64]) {
        for ticket in tickets {
            if let Some(asked) = self.take(*ticket) {
                self.put(*ticket, Asked { at: now, ..asked });
            }
        }
    }

    /// Decided, or somebody else's now.
    pub(super) fn forget(&mut self, tickets: &[i64]) {
        for ticket in tickets {
            self.take(*ticket);
        }
    }

    fn put(&mut self, ticket: i64, asked: Asked) {
        self.take(ticket);
        self.tickets.insert(ticket, asked);
        self.order.insert((asked.at, ticket));
    }

    fn take(&mut self, ticket: i64) -> Option<Asked> {
        let asked = self.tickets.remove(&ticket)?;
        self.order.remove(&(asked.at, ticket));
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_ticket_is_asked_after_5_10_20_ms_until_it_is_decided() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.staged(start, 7);
        let mut now = start;
        let mut waits = Vec::new();
        while let Some(next) = schedule.next() {
            waits.push((next - now).as_millis());
            now = next;
            assert_eq!(schedule.due(now, 10), [7]);
            schedule.open(now, &[7]);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640]);
    }

    #[test]
    fn a_confirmed_ticket_is_asked_at_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.staged(now, 7);
        assert!(schedule.due(now, 10).is_empty());
        schedule.confirmed(now, 7);
        assert_eq!(schedule.due(now, 10), [7]);
        schedule.forget(&[7]);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_second_stage_under_a_ticket_does_not_put_it_off() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.staged(now, 7);
        schedule.staged(now + FIRST, 7);
        assert_eq!(schedule.next(), Some(now + FIRST));
    }
}
