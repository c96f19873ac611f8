//! `[retention]`: how long what is kept. One setting for the whole fleet: what one service has forgotten may be what another one's
//! consumer still has to recognise.

use std::time::Duration;

use super::section::{Notes, Section};

/// How long what is kept, in all services alike.
#[derive(Debug)]
pub struct Retention {
    /// Published events, by when they were staged, and decisions about holds; 0 = for ever.
    pub outbox: Duration,
    /// What consumers have seen, by when it was last touched; 0 = for ever.
    pub inbox: Duration,
    /// From one cycle's start to the next one's.
    pub interval: Duration,
    /// Most rows of one cycle of one service.
    pub most: u64,
}

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Still within a calendar, counted back from now.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 3_600);
/// What an inbox must remember longer than an outbox: an event that is sent just before it is pruned, and the time that pruning
/// may come late, must both fit.
const MARGIN: Duration = DAY;
/// A cycle comes up to a tenth and a look late; with the clocks' differences that must stay within [`MARGIN`].
const SELDOMEST: Duration = Duration::from_secs(12 * 3_600);

impl Retention {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            outbox: section.get("outbox", 30 * DAY),
            inbox: section.get("inbox", 31 * DAY),
            interval: section.get("interval", HOUR),
            most: section.get("most", 5_000_000),
        }
    }

    pub(super) fn check(&self, notes: &mut Notes) {
        for (field, window) in [("retention.outbox", self.outbox), ("retention.inbox", self.inbox)] {
            // Shorter ones are a lost unit: what was published an hour ago is what people look for.
            if !window.is_zero() && !(HOUR..=LONGEST).contains(&window) && !notes.errors.about(field) {
                notes.wrong(field, "must be 0s (for ever) or between 1h and 36500d");
            }
        }
        let wrong = ["retention.outbox", "retention.inbox"].iter().any(|field| notes.errors.about(field));
        // Zero is the longest of all.
        let forgets_first =
            !self.inbox.is_zero() && (self.outbox.is_zero() || self.inbox < self.outbox + MARGIN);
        if forgets_first && !wrong {
            notes.wrong(
                "retention.inbox",
                "must be at least a day longer than retention.outbox (0s is for ever): else an event could be sent again after its \
                 consumer has forgotten it",
            );
        }
        if (self.interval.is_zero() || self.interval > SELDOMEST) && !notes.errors.about("retention.interval")
        {
            notes.wrong("retention.interval", "must be above 0 and at most 12h");
        }
        if !(1_000..=1_000_000_000).contains(&self.most) && !notes.errors.about("retention.most") {
            notes.wrong("retention.most", "must be between 1000 and 1000000000");
        }
    }
}
