//! The broker of the model: a publisher whose every message waits for the test to say what becomes of it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use holdfast_server::broker::{Outcome, Outgoing, Publisher, Weather};
use sqlx::PgPool;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// A message that was sent and not answered.
pub(super) struct Sending {
    pub instance: String,
    pub id: Uuid,
    /// The claim it was sent under; `None` if another one had outdated it already.
    pub generation: Option<i64>,
    answer: oneshot::Sender<Outcome>,
}

impl Sending {
    /// Tells its sender, if that lives.
    pub(super) fn answer(self, outcome: Outcome) {
        let _ = self.answer.send(outcome);
    }
}

/// What all replicas share of the broker, and what the test knows.
#[derive(Default)]
pub(super) struct Book {
    pub flying: Vec<Sending>,
    /// What the broker took, in order, each as often as it did.
    pub taken: Vec<Uuid>,
    /// Events whose COMMIT was at least sent: nothing else may be published.
    pub may_go: HashSet<Uuid>,
    /// Published too early.
    pub early: Vec<Uuid>,
}

/// One replica's way to it.
pub(super) struct Wire {
    pub instance: String,
    pub book: Arc<Mutex<Book>>,
    pub reads: PgPool,
    pub weather: watch::Receiver<Weather>,
}

impl Publisher for Wire {
    async fn publish(&self, message: Outgoing) -> Outcome {
        let id = Uuid::parse_str(&message.message_id).unwrap();
        {
            let mut book = self.book.lock().unwrap();
            if !book.may_go.contains(&id) {
                book.early.push(id);
            }
        }
        // A claim that was healed meanwhile is still the latest: its stamp is good until another claim outdates it.
        let claim = "SELECT claim_generation FROM holdfast.event_outbox
                     WHERE id = $1 AND (claimed_by = $2 OR claimed_by IS NULL)";
        let generation = sqlx::query_scalar(claim)
            .bind(id)
            .bind(&self.instance)
            .fetch_optional(&self.reads)
            .await
            .unwrap();
        let (answer, answered) = oneshot::channel();
        let sending = Sending { instance: self.instance.clone(), id, generation, answer };
        self.book.lock().unwrap().flying.push(sending);
        // Nobody answers a replica that was killed, nor does it hear.
        answered.await.unwrap_or(Outcome::Lost)
    }

    fn weather(&self) -> watch::Receiver<Weather> {
        self.weather.clone()
    }
}
