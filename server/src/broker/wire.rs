//! One channel in confirm mode and the one task that publishes on it and collects its confirms.
//!
//! Both in one task, because a confirm is judged together with all others that have completed ([`Returns`]), and because the
//! library draws a delivery tag and queues the frame under two different locks: two tasks on one channel could swap tags and
//! take each other's confirms. Never publish on this channel from anywhere else. The task ends with its channel, or when
//! nobody can publish any more; who still waits then is told that the message is lost.

use futures::StreamExt;
use futures::future::FutureExt;
use futures::stream::FuturesUnordered;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::Outcome;
use super::returns::{Landed, Returns};

/// A message dressed for the wire.
pub(super) struct Letter {
    pub id: String,
    pub routing_key: ShortString,
    pub properties: BasicProperties,
    pub body: String,
    pub answer: oneshot::Sender<Outcome>,
}

/// The way to a channel's task. Dropped, it ends the task.
#[derive(Clone)]
pub(super) struct Wire {
    letters: mpsc::UnboundedSender<Letter>,
    channel: Channel,
}

impl Wire {
    /// Takes over a channel that is in confirm mode.
    pub(super) fn open(channel: Channel, exchange: ShortString) -> Self {
        let (letters, inbox) = mpsc::unbounded_channel();
        tokio::spawn(run(channel.clone(), exchange, inbox));
        Self { letters, channel }
    }

    /// Whether a letter has a chance: an idle task does not notice that its channel died.
    pub(super) fn is_open(&self) -> bool {
        !self.letters.is_closed() && self.channel.status().connected()
    }

    /// Sends a letter; its sender is dropped unanswered if the channel is gone.
    pub(super) fn send(&self, letter: Letter) {
        // A letter that comes back drops its answer, which is what "gone" looks like to who waits.
        drop(self.letters.send(letter));
    }
}

async fn run(channel: Channel, exchange: ShortString, mut inbox: mpsc::UnboundedReceiver<Letter>) {
    let mut flying = FuturesUnordered::new();
    let mut returns = Returns::default();
    loop {
        let first = tokio::select! {
            letter = inbox.recv() => match letter {
                Some(letter) => {
                    flying.push(fly(channel.clone(), exchange.clone(), letter));
                    continue;
                }
                None => return,
            },
            Some(landed) = flying.next(), if !flying.is_empty() => landed,
        };
        let mut landed = vec![first];
        while let Some(Some(more)) = flying.next().now_or_never() {
            landed.push(more);
        }
        for (answer, outcome) in returns.judge(landed.into_iter().flatten().collect()) {
            // Who no longer waits has given the message up; its row is settled otherwise.
            let _ = answer.send(outcome);
        }
        if !channel.status().connected() {
            return;
        }
    }
}

/// From the wire to the confirm. `None`: lost with the channel.
async fn fly(
    channel: Channel,
    exchange: ShortString,
    letter: Letter,
) -> Option<Landed<oneshot::Sender<Outcome>>> {
    let Letter { id, routing_key, properties, body, answer } = letter;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish(exchange, routing_key, options, body.as_bytes(), properties).await;
    let confirmation = match sent {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    let (acked, back) = match confirmation {
        Ok(Confirmation::Ack(back)) => (true, back),
        Ok(Confirmation::Nack(back)) => (false, back),
        // A channel without confirm mode tells nothing; ours always has it.
        Ok(Confirmation::NotRequested) => return None,
        Err(error) => {
            debug!(%error, "publish lost with its channel");
            return None;
        }
    };
    let carried = back.map(|back| {
        let returned = back.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
        (returned, format!("{} {}", back.reply_code, back.reply_text))
    });
    Some(Landed { id, acked, carried, answer })
}
