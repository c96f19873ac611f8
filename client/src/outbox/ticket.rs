//! The name of a caller's transaction.

use std::fmt;

/// The name of one open transaction, or of the savepoint it was taken in: a random 64-bit number of either sign.
///
/// `SELECT holdfast.stage_ticket()` in it makes one (`outbox::ticket` does that with sqlx). It names nothing once its transaction is over, and nothing in another database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(i64);

impl Ticket {
    /// The number, as `StageInTxRequest.ticket` carries it.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

/// For a ticket that was taken elsewhere, with `SELECT holdfast.stage_ticket()`. Never make a number up: the server
/// refuses one whose lock nobody holds.
impl From<i64> for Ticket {
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl From<Ticket> for i64 {
    fn from(ticket: Ticket) -> Self {
        ticket.0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
