//! Whether a database's schema is one that this release can work with. Whoever looks at it (`schema`) shuts and opens; whoever
//! works asks. Asking is one atomic read: no lock, no connection.
//!
//! A gate is open unless somebody has seen a reason to shut it. One that is *awaited* is still to be looked at for the first
//! time: calls pass (they say themselves if the database is away), claims wait.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use super::{Error, Kind};

const OPEN: u8 = 0;
const AWAITED: u8 = 1;
const SHUT: u8 = 2;

/// A database's gate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    why: Mutex<Arc<str>>,
    changes: watch::Sender<()>,
    smells: Notify,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: AtomicU8::new(OPEN),
            why: Mutex::new("".into()),
            changes: watch::Sender::new(()),
            smells: Notify::new(),
        }))
    }
}

impl Gate {
    /// Whether work may be begun: claims, and whatever else nobody waits for.
    pub fn is_open(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == OPEN
    }

    /// Why calls are refused, if they are.
    pub fn refusal(&self) -> Option<Arc<str>> {
        (self.0.state.load(Ordering::Relaxed) == SHUT)
            .then(|| self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Somebody is going to look for the first time.
    pub fn await_first_look(&self) {
        self.0.state.store(AWAITED, Ordering::Relaxed);
    }

    /// Waits until somebody has looked, or has tried to.
    pub async fn first_look(&self) {
        let mut changes = self.0.changes.subscribe();
        while self.0.state.load(Ordering::Relaxed) == AWAITED && changes.changed().await.is_ok() {}
    }

    /// Nothing is in the way.
    pub fn open(&self) {
        self.enter(OPEN);
    }

    /// Nobody could look. What was known before stands; a gate that is only awaited does not stay so.
    pub fn unknown(&self) {
        if self.0.state.load(Ordering::Relaxed) == AWAITED {
            self.open();
        }
    }

    /// Nothing is to be begun, because of this.
    pub fn shut(&self, why: &str) {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = why.into();
        self.enter(SHUT);
    }

    fn enter(&self, state: u8) {
        self.0.state.store(state, Ordering::Relaxed);
        self.0.changes.send_replace(());
    }

    /// Hears of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// A unit of work failed. If it did as it does where the schema is not ours, whoever looks is to look soon. (A right that
    /// is missing is none of the schema's shape: looking would find nothing, each time again.)
    pub fn failed(&self, error: &Error) {
        if error.kind == Kind::Schema && error.sqlstate.as_deref() != Some("42501") {
            self.0.smells.notify_one();
        }
    }

    /// Waits for that.
    pub async fn smelled(&self) {
        self.0.smells.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_open_until_it_is_shut_and_tells_why() {
        let gate = Gate::default();
        assert!(gate.is_open() && gate.refusal().is_none());
        gate.shut("index x is missing");
        assert!(!gate.is_open());
        assert_eq!(gate.refusal().as_deref(), Some("index x is missing"));
        gate.unknown();
        assert!(!gate.is_open(), "a database that is away says nothing about its schema");
        gate.open();
        assert!(gate.is_open() && gate.refusal().is_none());
    }

    #[tokio::test]
    async fn one_that_is_awaited_lets_calls_pass_and_no_claims_until_somebody_tried_to_look() {
        let gate = Gate::default();
        gate.await_first_look();
        assert!(!gate.is_open() && gate.refusal().is_none());
        let waits = tokio::spawn({
            let gate = gate.clone();
            async move { gate.first_look().await }
        });
        gate.unknown();
        waits.await.unwrap_or_else(|_| unreachable!("it does not panic"));
        assert!(gate.is_open());
    }
}
