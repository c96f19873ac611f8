//! Whether a database lives: when it last did something for us as a primary. Nobody asks it for that; who works anyway leaves
//! the mark (the resolver looks each second), so that health costs no connection and no round trip.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Error;

/// A database's last sign of life. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Signs>);

#[derive(Debug)]
struct Signs {
    born: Instant,
    /// Milliseconds after `born`, and one; 0 is never.
    last: AtomicU64,
    /// What was said when it failed last.
    trouble: Mutex<Option<String>>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Signs { born: Instant::now(), last: AtomicU64::new(0), trouble: Mutex::default() }))
    }
}

impl Pulse {
    /// It has committed for us, or answered as a primary.
    pub fn beat(&self) {
        let now = u64::try_from(self.0.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.last.fetch_max(now + 1, Ordering::Relaxed);
    }

    /// It failed; `error` is what an operator is told while there is no sign of life.
    pub fn missed(&self, error: &Error) {
        *self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    /// How long ago the last sign was; `None` if there never was one.
    pub fn silence(&self) -> Option<Duration> {
        let last = self.0.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.0.born.elapsed().saturating_sub(Duration::from_millis(last)))
    }

    /// What was said when it failed last, recently or not.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
