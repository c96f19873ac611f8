//! The rules of consuming that server and client share: what ends a series of attempts, how its death is named, how long to wait.
//!
//! A consumer in process decides what the server decides, of the same row. So there is one place for both.

use std::time::Duration;

use uuid::Uuid;

/// So many errors end a series of attempts: with a back-off that grows to a minute that is minutes of trying.
pub const MOST_FAILURES: i32 = 5;
/// So many starts that ended in nothing do: whatever kills its consumer three times will do so again, and each time costs its
/// neighbours.
pub const MOST_LOST_STARTS: i32 = 3;
/// Bytes that are kept of an error's text.
pub const MOST_ERROR_BYTES: usize = 1_024;
/// When to come again for what is in a transaction's hands, whose end nobody knows.
pub const OPEN_RETRY: Duration = Duration::from_millis(500);
/// The longest that anybody is told to wait for a lease: it may be given back sooner.
pub const LEASE_RETRY: Duration = Duration::from_secs(5);
/// What every name of a death begins with.
pub const TOKEN_PREFIX: &str = "dlxcap:";

/// The name of a death: `dlxcap:{envelope id}:{queue}:{when its series began, in whole seconds since 1970}`.
///
/// Made of what is in the database before anything is published, so that a letter that is sent again has the same one, and whoever
/// collects letters knows the second for the first (ADR-022, #1181).
///
/// ```
/// let token = holdfast_proto::consumption::token(uuid::Uuid::nil(), "orders.payments", 1_780_000_000);
/// assert_eq!(token, "dlxcap:00000000-0000-0000-0000-000000000000:orders.payments:1780000000");
/// ```
#[must_use]
pub fn token(envelope_id: Uuid, queue: &str, epoch: i64) -> String {
    format!("{TOKEN_PREFIX}{envelope_id}:{queue}:{epoch}")
}

/// An error's text as it can be stored and shown: no control characters (the database takes no U+0000), and not too much.
///
/// ```
/// assert_eq!(holdfast_proto::consumption::legible("no\nsuch\0order"), "no such order");
/// ```
#[must_use]
pub fn legible(error: &str) -> String {
    let mut text: String = error.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.truncate(text.floor_char_boundary(MOST_ERROR_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_s_text_is_cut_between_two_characters_and_has_no_control_characters() {
        assert_eq!(legible("a\0b\nc"), "a b c");
        assert_eq!(legible(&"ü".repeat(MOST_ERROR_BYTES)).len(), MOST_ERROR_BYTES);
        assert_eq!(legible(&format!("x{}", "ü".repeat(MOST_ERROR_BYTES))).len(), MOST_ERROR_BYTES - 1);
    }
}
