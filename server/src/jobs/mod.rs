//! Jobs: work that goes on slice by slice, whoever starts and dies (design, section 8).
//!
//! Guarantees: one replica at a time works on a job; a slice's books are written in one transaction, fenced by the job's generation,
//! so that a slice whose replica was killed is done again and counted once; its rate is one, however many replicas there are, since each
//! claim books what its slice may take; a job that fails too often pauses itself. Does not: know what a job does ([`Kind`]), or
//! whose right it is to have one.
//!
//! ```text
//!  planned ──start──▶ preparing ──set copied──▶ running ──nothing left──▶ done
//!     │ nobody ran it       │  ▲                  │  ▲
//!     ▼ within its time     │  └────── resume ────┤  │ pause, or too many failures
//!  (forgotten)              ├──▶ paused ◀─────────┴──┘
//!                           └──cancel (each of them)──▶ cancelled
//! ```

mod engine;
mod sql;

use time::OffsetDateTime;
use uuid::Uuid;

pub use engine::{Engine, Hints, Kind, Options, Progress, Step, Turn};
pub use sql::{QUERIES, Starting, cancel, count_open, find, insert, list, lock, pause, prune, resume, start};

/// Jobs of a service that are started and not ended, at most.
pub const MOST_OPEN: i64 = 4;
/// Rows of one slice, at most.
pub const MOST_SLICE: i32 = 1_000;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// To be looked at, and run if it pleases.
    Planned,
    /// Its set is being copied.
    Preparing,
    /// It goes on slice by slice.
    Running,
    /// It waits for whoever resumes or cancels it.
    Paused,
    /// Nothing is left.
    Done,
    /// Somebody ended it.
    Cancelled,
}

impl State {
    const ALL: [Self; 6] =
        [Self::Planned, Self::Preparing, Self::Running, Self::Paused, Self::Done, Self::Cancelled];

    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// It has come to an end.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

/// A job, as it stands. All times are the database's.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name.
    pub id: Uuid,
    /// Where it is.
    pub state: State,
    /// Who asked for it.
    pub requested_by: String,
    /// When.
    pub created_at: OffsetDateTime,
    /// A plan: until when it can be run.
    pub expires_at: Option<OffsetDateTime>,
    /// That time has come.
    pub expired_plan: bool,
    /// When it was started.
    pub started_at: Option<OffsetDateTime>,
    /// When it came to its end.
    pub ended_at: Option<OffsetDateTime>,
    /// Why it is paused, or ended.
    pub reason: Option<String>,
    /// Rows a second.
    pub max_rate: i32,
    /// With a ramp: most rows of the next slice.
    pub ramp: Option<i32>,
    /// The share of failures above which it pauses itself.
    pub max_failures: f64,
    /// The slice under way, if there is one: how many rows it may do.
    pub in_flight: i32,
    /// Rows of its set.
    pub matched: i64,
    /// Rows that were done.
    pub done: i64,
    /// Rows that could not be.
    pub failed: i64,
    /// Rows that had become too old.
    pub expired: i64,
    /// Rows that were gone.
    pub pruned: i64,
}
