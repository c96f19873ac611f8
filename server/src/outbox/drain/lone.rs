//! Crash poison: a row whose claims ended twice without an outcome may be what kills its publishers. It is claimed alone from
//! then on, with nothing else of the service in flight in this replica, so that a crash convicts it and no innocent.
//!
//! [`Turn`] decides whose turn it is, so that neither sort starves the other: once such a row is due nothing else is claimed
//! until the flight is empty; then one row flies alone; then an ordinary pass comes first again. It is pure; [`claim`] is not.

use uuid::Uuid;

use super::super::sql;
use super::Shared;
use crate::db::{self, Tx};

/// What a pass may claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Ordinary,
    Alone,
    /// Nothing until the flight is empty.
    Wait,
}

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// A row to be claimed alone was seen.
    due: bool,
    /// One has had its turn; ordinary work is next.
    owed: bool,
    /// It may be in flight.
    alone: bool,
}

impl Turn {
    /// What a pass saw.
    pub(super) fn seen(&mut self, due: bool) {
        self.due = due;
    }

    /// Whether a row waits to be claimed alone.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// `unsettled`: rows in flight. `wanted`: whether there may be ordinary work.
    pub(super) fn next(&self, unsettled: usize, wanted: bool) -> Next {
        let lone = self.due && !(self.owed && wanted);
        match (lone, unsettled) {
            (true, 0) => Next::Alone,
            (true, _) => Next::Wait,
            (false, 1..) if self.alone => Next::Wait,
            (false, _) => Next::Ordinary,
        }
    }

    /// A pass begins.
    pub(super) fn begins(&mut self, next: Next) {
        self.alone = next == Next::Alone;
        self.owed = self.alone;
    }
}

/// Rows looked at in one pass for one that may go: those behind an earlier row of their key are set aside.
const LOOKS: usize = 32;

/// Claims one row of those that must be alone.
pub(super) async fn claim(
    tx: &mut Tx,
    shared: &Shared,
    suspect: &mut Option<Uuid>,
) -> Result<Vec<sql::Claimed>, db::Error> {
    for _ in 0..LOOKS {
        let Some(id) = sql::lone(tx.conn()).await? else { break };
        *suspect = Some(id);
        let options = &shared.options;
        let answered = sql::claim(tx.conn(), &[id], &[], &options.instance, options.blocks(), &[]).await?;
        *suspect = None;
        if answered.iter().any(|row| row.goes) {
            return Ok(answered);
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_flies_alone_after_the_flight_is_empty_and_before_ordinary_work_goes_on() {
        let mut turn = Turn::default();
        assert_eq!(turn.next(7, true), Next::Ordinary);
        turn.seen(true);
        assert_eq!(turn.next(7, true), Next::Wait, "nothing is claimed beside what is in flight");
        assert_eq!(turn.next(0, true), Next::Alone);
        turn.begins(Next::Alone);
        turn.seen(false);
        assert_eq!(turn.next(1, true), Next::Wait, "nothing is claimed beside it");
        assert_eq!(turn.next(0, true), Next::Ordinary);
    }

    #[test]
    fn neither_sort_starves_the_other() {
        let mut turn = Turn::default();
        let mut order = Vec::new();
        for _ in 0..6 {
            turn.seen(true);
            let next = turn.next(0, true);
            turn.begins(next);
            order.push(next);
        }
        assert_eq!(order, [Next::Alone, Next::Ordinary].repeat(3));
        // Without ordinary work there is nothing to wait for.
        turn.begins(Next::Alone);
        assert_eq!(turn.next(0, false), Next::Alone);
    }
}
