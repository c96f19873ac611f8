//! What the consumer got: per event how often, and which came first. Bodies are thrown away, a soak brings hundreds of thousands.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use uuid::Uuid;

use crate::{consumer::Listener, server::EXCHANGE};

/// One event's deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its place among first deliveries.
    pub first: usize,
    /// How often it came.
    pub times: u64,
}

/// Everything that came.
#[derive(Debug, Default, Clone)]
pub struct Deliveries {
    /// By event.
    pub by_id: HashMap<Uuid, Received>,
    /// All, duplicates included.
    pub total: u64,
    /// Messages whose id is no UUID; nobody here sends any.
    pub foreign: u64,
}

impl Deliveries {
    /// Writes one down.
    pub fn note(&mut self, message_id: &str) {
        self.total += 1;
        let Ok(id) = Uuid::parse_str(message_id) else {
            self.foreign += 1;
            return;
        };
        let first = self.by_id.len();
        self.by_id.entry(id).or_insert(Received { first, times: 0 }).times += 1;
    }
}

/// The consumer.
#[derive(Debug)]
pub struct Recorder {
    seen: Arc<Mutex<Deliveries>>,
    _listener: Listener,
}

impl Recorder {
    /// On a queue that gets everything of the exchange.
    pub async fn start(url: &str) -> Self {
        let seen = Arc::new(Mutex::new(Deliveries::default()));
        let book = seen.clone();
        let note = move |delivery: &lapin::message::Delivery| {
            let id = delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
            book.lock().unwrap().note(&id);
        };
        Self { _listener: Listener::bound(url, EXCHANGE, "#", note).await, seen }
    }

    /// How many different events have come.
    pub fn different(&self) -> usize {
        self.seen.lock().unwrap().by_id.len()
    }

    /// All so far.
    pub fn deliveries(&self) -> Deliveries {
        self.seen.lock().unwrap().clone()
    }
}
