//! The same id again: what to answer, by the row that is there. Pure; the table of design section 3. To a request without a
//! ticket every ticket is another one.
//!
//! | existing row | answer |
//! | --- | --- |
//! | resolved, same hash / other hash | duplicate / conflict |
//! | this ticket, other hash | conflict |
//! | this ticket, same hash: open or committed / rolled back | duplicate / refused as rolled back |
//! | other ticket, committed | as resolved |
//! | other ticket, rolled back | replaced whole |
//! | other ticket, open | contended: **never** duplicate, else a hung first attempt takes the second one's event with it |

use super::super::sql::Existing;
use super::Refused;
use crate::tickets::Verdicts;

/// What to do with one event whose id is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Duplicate,
    /// The row of this rolled-back ticket goes first.
    Replace(i64),
}

/// Decides for one row. `verdicts` must hold the row's ticket, if it has one.
pub(super) fn decide(
    row: &Existing,
    ticket: Option<i64>,
    content_hash: &[u8; 32],
    verdicts: &Verdicts,
) -> Result<Decision, Refused> {
    let same_content = row.content_hash.as_deref() == Some(content_hash.as_slice());
    let as_resolved = || if same_content { Ok(Decision::Duplicate) } else { Err(Refused::Conflict(row.id)) };
    match row.ticket {
        None => as_resolved(),
        Some(t) if verdicts.committed.contains(&t) => as_resolved(),
        Some(_) if row.ticket == ticket && !same_content => Err(Refused::Conflict(row.id)),
        Some(t) if row.ticket == ticket && verdicts.rolled_back.contains(&t) => {
            Err(Refused::TicketRolledBack)
        }
        Some(_) if row.ticket == ticket => Ok(Decision::Duplicate),
        Some(t) if verdicts.rolled_back.contains(&t) => Ok(Decision::Replace(t)),
        Some(_) => Err(Refused::Contended(row.id)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use uuid::Uuid;

    use super::*;

    const MINE: i64 = 1;
    const OTHER: i64 = 2;
    const HASH: [u8; 32] = [7; 32];

    #[derive(Clone, Copy)]
    enum State {
        Open,
        Committed,
        RolledBack,
    }

    fn judged(ticket: Option<i64>, hash: Option<[u8; 32]>, state: State) -> Result<Decision, Refused> {
        judged_for(Some(MINE), ticket, hash, state)
    }

    fn judged_for(
        mine: Option<i64>,
        ticket: Option<i64>,
        hash: Option<[u8; 32]>,
        state: State,
    ) -> Result<Decision, Refused> {
        let tickets = ticket.into_iter().collect();
        let verdicts = match state {
            State::Open => Verdicts { open: tickets, ..Verdicts::default() },
            State::Committed => Verdicts { committed: tickets, ..Verdicts::default() },
            State::RolledBack => Verdicts { rolled_back: tickets, ..Verdicts::default() },
        };
        let row = Existing { id: Uuid::nil(), ticket, content_hash: hash.map(Vec::from) };
        decide(&row, mine, &HASH, &verdicts)
    }

    #[test]
    fn a_resolved_row_is_a_duplicate_of_the_same_content_only() {
        assert_eq!(judged(None, Some(HASH), State::Open).unwrap(), Decision::Duplicate);
        assert!(matches!(judged(None, Some([8; 32]), State::Open), Err(Refused::Conflict(_))));
        assert!(matches!(judged(None, None, State::Open), Err(Refused::Conflict(_))), "put in by SQL");
    }

    #[test]
    fn the_same_ticket_again_is_a_duplicate_unless_it_rolled_back() {
        assert_eq!(judged(Some(MINE), Some(HASH), State::Open).unwrap(), Decision::Duplicate);
        assert_eq!(judged(Some(MINE), Some(HASH), State::Committed).unwrap(), Decision::Duplicate);
        assert!(matches!(judged(Some(MINE), Some(HASH), State::RolledBack), Err(Refused::TicketRolledBack)));
        assert!(matches!(judged(Some(MINE), Some([8; 32]), State::Open), Err(Refused::Conflict(_))));
    }

    #[test]
    fn another_ticket_that_is_open_is_contended_and_never_a_duplicate() {
        for hash in [HASH, [8; 32]] {
            assert!(matches!(judged(Some(OTHER), Some(hash), State::Open), Err(Refused::Contended(_))));
        }
    }

    #[test]
    fn another_ticket_that_committed_counts_as_resolved() {
        assert_eq!(judged(Some(OTHER), Some(HASH), State::Committed).unwrap(), Decision::Duplicate);
        assert!(matches!(judged(Some(OTHER), Some([8; 32]), State::Committed), Err(Refused::Conflict(_))));
    }

    #[test]
    fn to_a_request_without_a_ticket_every_ticket_is_another_one() {
        let judged = |ticket, hash, state| judged_for(None, ticket, Some(hash), state);
        for committed in [judged(None, HASH, State::Open), judged(Some(MINE), HASH, State::Committed)] {
            assert_eq!(committed.unwrap(), Decision::Duplicate);
        }
        for other in [judged(None, [8; 32], State::Open), judged(Some(MINE), [8; 32], State::Committed)] {
            assert!(matches!(other, Err(Refused::Conflict(_))));
        }
        for hash in [HASH, [8; 32]] {
            assert!(matches!(judged(Some(MINE), hash, State::Open), Err(Refused::Contended(_))));
            assert_eq!(judged(Some(MINE), hash, State::RolledBack).unwrap(), Decision::Replace(MINE));
        }
    }

    #[test]
    fn another_ticket_that_rolled_back_makes_way_whatever_its_content() {
        for hash in [HASH, [8; 32]] {
            assert_eq!(judged(Some(OTHER), Some(hash), State::RolledBack).unwrap(), Decision::Replace(OTHER));
        }
    }
}
