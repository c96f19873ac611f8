//! Why a request is refused: every violation by field path, or the size that is over its limit.
//!
//! Guarantees: no text holds a value of the caller's, only field paths, positions and counts; a list is bounded in
//! entries and bytes, because it travels in response metadata, which clients cap at 8 to 16 KiB. Design: section 2.

use std::fmt;

/// Violations that are listed; the rest are counted.
pub const MAX_LISTED: usize = 50;

/// Bytes of all listed field paths and descriptions together: in base64 they still fit the smallest metadata limit in
/// use (8 KiB) with the rest of the status.
pub const MAX_LISTED_BYTES: usize = 4_096;

/// Bytes of any error message made here.
pub const MAX_MESSAGE_BYTES: usize = 1_000;

/// One rule broken in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, such as `events[3].type`.
    pub field: String,
    /// What is wrong with it, without its value.
    pub description: String,
}

/// All violations of one request: the first ones listed, the others counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<Violation>,
    bytes: usize,
    more: usize,
}

impl Violations {
    /// Adds one. It is only counted if [`MAX_LISTED`] or [`MAX_LISTED_BYTES`] is reached. The caller must not put
    /// values of the request into either text.
    pub fn push(&mut self, field: impl Into<String>, description: impl Into<String>) {
        let violation = Violation { field: field.into(), description: description.into() };
        let bytes = violation.field.len() + violation.description.len();
        // Once one was only counted, all later ones are: the list stays a prefix.
        if self.more > 0 || self.listed.len() >= MAX_LISTED || self.bytes + bytes > MAX_LISTED_BYTES {
            self.more += 1;
            return;
        }
        self.bytes += bytes;
        self.listed.push(violation);
    }

    /// Adds all of another list behind this one, so that a request is answered with one list.
    pub fn merge(&mut self, other: Self) {
        for violation in other.listed {
            self.push(violation.field, violation.description);
        }
        self.more += other.more;
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// The listed ones, in the order of the request; what `google.rpc.BadRequest` carries.
    #[must_use]
    pub fn listed(&self) -> &[Violation] {
        &self.listed
    }

    /// How many more there are than are listed.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// How many there are altogether.
    #[must_use]
    pub fn total(&self) -> usize {
        self.listed.len() + self.more
    }
}

impl fmt::Display for Violations {
    /// One line of at most [`MAX_MESSAGE_BYTES`] bytes: the total, as many violations as fit, and how many more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Room for "; and N more" with the longest count.
        const TAIL_BYTES: usize = 40;
        let total = self.total();
        let mut text = format!("{total} violation{}", if total == 1 { "" } else { "s" });
        let mut shown = 0;
        for violation in &self.listed {
            let item = format!(
                "{} {} {}",
                if shown == 0 { ":" } else { ";" },
                violation.field,
                violation.description
            );
            if text.len() + item.len() + TAIL_BYTES > MAX_MESSAGE_BYTES {
                break;
            }
            text.push_str(&item);
            shown += 1;
        }
        if shown < total {
            text.push_str(&format!("; and {} more", total - shown));
        }
        f.write_str(&text)
    }
}

/// One size over its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {actual} bytes, over the limit of {limit} bytes")]
pub struct TooLarge {
    /// The path of what is too large, such as `events[3]`.
    pub field: String,
    /// Its size in bytes.
    pub actual: usize,
    /// What is allowed, in bytes.
    pub limit: usize,
}

/// Why a request is refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// INVALID_ARGUMENT: rules are broken; all of them are here, whatever the sizes.
    #[error("{0}")]
    Violations(Violations),
    /// RESOURCE_EXHAUSTED: every rule is kept, but an envelope is over its limit; the first one is named.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}
