//! Labels that come from outside are bounded: each new value is a series for ever.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Longer names can only come from hand-written SQL, and no broker carries them.
const LONGEST: usize = 255;
/// So many event types of a service have series of their own.
const MOST_TYPES: usize = 200;
/// The series of all others.
const OTHER: &str = "other";

/// The event types of one service that have series of their own: the first ones that were seen. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct TypeLabels(Arc<RwLock<HashSet<Box<str>>>>);

impl TypeLabels {
    /// The label's value for an event type: itself, or `other`.
    pub(super) fn of<'a>(&self, event_type: &'a str) -> &'a str {
        if event_type.len() > LONGEST {
            return OTHER;
        }
        // A set of names is whole whatever panicked beside it.
        if self.0.read().unwrap_or_else(PoisonError::into_inner).contains(event_type) {
            return event_type;
        }
        let mut seen = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST_TYPES || seen.contains(event_type) {
            seen.insert(event_type.into());
            event_type
        } else {
            OTHER
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_types_keep_their_names_and_all_later_ones_are_other() {
        let labels = TypeLabels::default();
        for n in 0..MOST_TYPES {
            let name = format!("t.{n}");
            assert_eq!(labels.of(&name), name);
        }
        assert_eq!(labels.of("one.more"), "other");
        assert_eq!(labels.of("t.0"), "t.0", "who has a name keeps it");
        assert_eq!(TypeLabels::default().of("one.more"), "one.more", "each service has its own");
    }
}
