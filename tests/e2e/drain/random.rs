//! Random interleavings of everything that writes events, over few keys and two servers: what committed arrives, what
//! rolled back does not, and first deliveries keep invariant 4 (design, section 15). The seed is printed, and can be set.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_tests::{
    caller::Caller,
    client::{Client, event, keyed},
    reconcile::settled,
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    wait::LONG,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{MISSED, first_deliveries, put};

/// What one transaction has done so far.
#[derive(Default)]
struct Open {
    ticket: Option<i64>,
    /// Per event: its id, its key and the step in which it was staged.
    events: Vec<(String, Option<String>, usize)>,
}

/// What has become final, and when.
#[derive(Default)]
struct Book {
    /// Per key: (id, step of staging, step of the commit).
    committed: BTreeMap<Option<String>, Vec<(String, usize, usize)>>,
    ids: BTreeSet<String>,
    rolled_back: usize,
}

impl Book {
    fn commit(&mut self, events: Vec<(String, Option<String>, usize)>, step: usize) {
        for (id, key, staged) in events {
            self.ids.insert(id.clone());
            self.committed.entry(key).or_default().push((id, staged, step));
        }
    }

    /// Pairs of a key of which the first was final before the second was staged.
    fn check_order(&self, deliveries: &[String]) {
        let place: BTreeMap<&String, usize> = deliveries.iter().enumerate().map(|(i, id)| (id, i)).collect();
        for (key, events) in
            self.committed.iter().filter(|(key, _)| key.as_deref().is_some_and(|k| !k.is_empty()))
        {
            for (first, _, committed) in events {
                for (second, staged, _) in events {
                    // Events of one transaction and key: in the order of staging, too.
                    let before = committed < staged;
                    assert!(!before || place[first] < place[second], "key {key:?}: {second} before {first}");
                }
            }
        }
    }
}

async fn play(seed: u64, steps: usize) {
    eprintln!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let settings = Scene::builder().set("drain", "batch", "7").set("drain", "poll", "\"200ms\"");
    let scene = settings.start().await;
    let other = ServerInProcess::start(&scene.config).await;
    let clients = [scene.client.clone(), Client::new(other.address(), SERVICE)];
    let mut callers: Vec<Caller> = Vec::new();
    for _ in 0..5 {
        callers.push(scene.caller().await);
    }
    let mut open: Vec<Option<Open>> = (0..callers.len()).map(|_| None).collect();
    let mut ended: Vec<i64> = Vec::new();
    let mut book = Book::default();
    for step in 0..steps {
        let n = dice.random_range(0..callers.len());
        let client = &clients[dice.random_range(0..2)];
        match dice.random_range(0..10) {
            0..=4 => {
                let transaction = match &mut open[n] {
                    Some(transaction) => transaction,
                    none => {
                        callers[n].begin().await;
                        none.insert(Open::default())
                    }
                };
                // Now and then a second ticket in one transaction.
                let ticket = match transaction.ticket {
                    Some(ticket) if dice.random_bool(0.9) => ticket,
                    _ => callers[n].ticket().await,
                };
                transaction.ticket = Some(ticket);
                let key = match dice.random_range(0..5) {
                    0 => None,
                    1 => Some(String::new()),
                    k => Some(format!("k-{k}")),
                };
                let one =
                    key.as_deref().map_or_else(|| event("order.placed"), |key| keyed("order.placed", key));
                client.stage(ticket, std::slice::from_ref(&one)).await;
                transaction.events.push((one.id, key, step));
            }
            5..=6 => {
                if let Some(transaction) = open[n].take() {
                    callers[n].commit().await;
                    ended.extend(transaction.ticket);
                    book.commit(transaction.events, step);
                }
            }
            7 => {
                if let Some(transaction) = open[n].take() {
                    callers[n].rollback().await;
                    ended.extend(transaction.ticket);
                    book.rolled_back += transaction.events.len();
                }
            }
            8 => {
                if !ended.is_empty() {
                    client.confirm(ended[dice.random_range(0..ended.len())]).await;
                }
            }
            _ => {
                let key = format!("k-{}", dice.random_range(2..5));
                let id = put(&scene.database, "order.by-sql", Some(&key), &[]).await;
                book.commit(vec![(id, Some(key), step)], step);
            }
        }
    }
    for (caller, transaction) in callers.iter_mut().zip(open) {
        if let Some(transaction) = transaction {
            caller.commit().await;
            book.commit(transaction.events, steps);
        }
    }

    let ids: Vec<String> = book.ids.iter().cloned().collect();
    scene.consumer.wait_for_ids(&ids, LONG).await;
    let census = settled(&scene.database, ids.len() + book.rolled_back, LONG).await;
    assert_eq!(census.published, ids.len() as i64, "seed {seed}: {census:?}");
    let first = first_deliveries(scene.consumer.ids());
    let delivered: BTreeSet<String> = first.iter().cloned().collect();
    assert_eq!(delivered, book.ids, "seed {seed}");
    book.check_order(&first);
    assert_eq!(scene.server.metric(MISSED, "") + other.metric(MISSED, ""), 0.0, "seed {seed}");
    other.stop().await;
    scene.end(ids.len() + book.rolled_back).await;
}

#[tokio::test]
async fn heavy_random_interleavings_deliver_what_committed_in_order_and_nothing_else() {
    let given = std::env::var("DRAIN_SEED").ok().and_then(|text| text.parse().ok());
    play(given.unwrap_or_else(rand::random), 400).await;
}
