//! What is kept for a time: the one list. A feature with rows of its own to be pruned joins by a line in each function.

use std::time::Duration;

use super::Windows;
use crate::outbox::prune;
use crate::{db, inbox, jobs};

/// A table that retention prunes. Each owns its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    /// Published events.
    EventOutbox,
    /// Decisions about holds.
    HoldOutcome,
    /// What consumers have seen.
    EventInbox,
    /// Jobs that ended, with what they are about, and plans that nobody ran.
    Job,
}

impl Table {
    pub(super) const ALL: [Self; 4] = [Self::EventOutbox, Self::HoldOutcome, Self::EventInbox, Self::Job];

    /// Its name in the schema.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::EventOutbox => "event_outbox",
            Self::HoldOutcome => "hold_outcome",
            Self::EventInbox => "event_inbox",
            Self::Job => "job",
        }
    }

    /// How long its rows are kept; `None`: for ever.
    pub(super) fn kept(self, windows: &Windows) -> Option<Duration> {
        let kept = match self {
            Self::EventOutbox | Self::HoldOutcome | Self::Job => windows.outbox,
            Self::EventInbox => windows.inbox,
        };
        (!kept.is_zero()).then_some(kept)
    }

    /// Deletes at most `limit` of its oldest rows that are past their time; tells how many.
    pub(super) async fn prune(
        self,
        conn: &mut db::Conn,
        kept: Duration,
        limit: i64,
    ) -> Result<u64, db::Error> {
        match self {
            Self::EventOutbox => prune::published(conn, kept, limit).await,
            Self::HoldOutcome => prune::decisions(conn, kept, limit).await,
            Self::EventInbox => inbox::prune(conn, kept, limit).await,
            Self::Job => jobs::prune(conn, kept, limit).await,
        }
    }
}
