//! The replicas: which one takes the next call.
//!
//! Guarantees: calls go round the replicas that can be connected to. One that cannot is left out until a connection
//! succeeds, which is tried in the background with back-off: no call waits for it twice. If none can be connected to, each
//! call tries. Does not: look at load or health; a replica that is stopping refuses, and the call is sent again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

/// The first wait before a replica is tried again; it doubles. Short: a replica's restart takes seconds.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);

/// The longest. A replica that is away for an hour costs each client 700 connection attempts.
const RECONNECT_LONGEST: Duration = Duration::from_secs(5);

/// All replicas of the server. Never empty.
#[derive(Debug)]
pub(super) struct Endpoints {
    replicas: Vec<Arc<Replica>>,
    next: AtomicUsize,
}

/// One replica.
#[derive(Debug)]
pub(super) struct Replica {
    endpoint: Endpoint,
    channel: Mutex<Channel>,
    /// The last connection attempt failed.
    down: AtomicBool,
    /// One of several: then somebody tries in the background.
    one_of_several: bool,
}

impl Endpoints {
    /// Nothing is connected yet. Must be called inside a tokio runtime.
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Self {
        let one_of_several = endpoints.len() > 1;
        let replicas = endpoints
            .into_iter()
            .map(|endpoint| {
                let channel = Mutex::new(endpoint.connect_lazy());
                Arc::new(Replica { endpoint, channel, down: AtomicBool::new(false), one_of_several })
            })
            .collect();
        // Clients of one list do not all begin with its first entry.
        Self { replicas, next: AtomicUsize::new(rand::random_range(0..1_000)) }
    }

    /// The replica for the next call.
    pub(super) fn pick(&self) -> Option<Arc<Replica>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let up: Vec<_> = self.replicas.iter().filter(|replica| !replica.is_down()).collect();
        let from = if up.is_empty() { self.replicas.iter().collect() } else { up };
        turn.checked_rem(from.len()).and_then(|index| from.get(index)).map(|replica| Arc::clone(replica))
    }

    /// How many replicas there are.
    pub(super) fn count(&self) -> usize {
        self.replicas.len()
    }

    /// Whether there is one that is not known to be away.
    pub(super) fn any_up(&self) -> bool {
        self.replicas.iter().any(|replica| !replica.is_down())
    }
}

impl Replica {
    pub(super) fn channel(&self) -> Channel {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// It has answered.
    pub(super) fn is_up(&self) {
        // Asked first: a store by each call would have all of them contend for it.
        if self.is_down() {
            self.down.store(false, Ordering::Relaxed);
        }
    }

    /// It could not be connected to.
    pub(super) fn cannot_connect(self: &Arc<Self>) {
        if self.one_of_several && !self.down.swap(true, Ordering::Relaxed) {
            tokio::spawn(reconnect(Arc::downgrade(self)));
        }
    }
}

/// Ends when there is a connection, or nobody who would want one.
async fn reconnect(replica: Weak<Replica>) {
    let mut wait = RECONNECT_FIRST;
    loop {
        tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
        wait = (wait * 2).min(RECONNECT_LONGEST);
        let Some(endpoint) =
            replica.upgrade().filter(|replica| replica.is_down()).map(|replica| replica.endpoint.clone())
        else {
            return;
        };
        // Bounded by the connect time-out. What went wrong is what the call was told that found it.
        if let Ok(channel) = endpoint.connect().await {
            if let Some(replica) = replica.upgrade() {
                *replica.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
                replica.is_up();
            }
            return;
        }
    }
}
