//! One channel in confirm mode and the one task that publishes on it and collects its confirms.
//!
//! Both in one task, because a confirm is judged together with all others that have completed ([`Returns`]), and because the
//! library draws a delivery tag and queues the frame under two different locks: two tasks on one channel could swap tags and
//! take each other's confirms. Never publish on this channel from anywhere else. The task ends with its channel, or when
//! nobody can publish any more; who still waits then is told that the message is lost, unless the broker closed the channel
//! over it ([`Careful`]).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::FutureExt;
use futures::stream::FuturesUnordered;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tracing::debug;

use super::Outcome;
use super::careful::Careful;
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
    pub(super) fn open(channel: Channel, exchange: ShortString, careful: Arc<Careful>) -> Self {
        let (letters, inbox) = mpsc::unbounded_channel();
        tokio::spawn(run(channel.clone(), exchange, inbox, careful));
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

/// How a letter's time on the wire ended.
enum Landing {
    Confirmed(Landed<oneshot::Sender<Outcome>>),
    /// With its channel. `error`: the broker's, if it closed the channel over one of its letters.
    Fell {
        answer: oneshot::Sender<Outcome>,
        error: Option<String>,
    },
}

/// How often a channel with letters on it is looked at.
const LOOK: Duration = Duration::from_millis(500);

async fn run(
    channel: Channel,
    exchange: ShortString,
    mut inbox: mpsc::UnboundedReceiver<Letter>,
    careful: Arc<Careful>,
) {
    let mut flying = FuturesUnordered::new();
    let mut returns = Returns::default();
    // The library can forget a letter that was sent while its channel closed: its confirm never comes, and whoever waits would
    // wait for the whole time-out, with all claims of the service behind him.
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen_closed = false;
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
            _ = look.tick(), if !flying.is_empty() => {
                let closed = !channel.status().connected();
                // Twice in a row: between the two the broker's own words may still arrive, which say whose fault it was.
                if closed && seen_closed {
                    debug!(letters = flying.len(), "the channel is closed, and these were never told");
                    return;
                }
                seen_closed = closed;
                continue;
            }
        };
        let mut landed = vec![first];
        while let Some(Some(more)) = flying.next().now_or_never() {
            landed.push(more);
        }
        let mut confirmed = Vec::new();
        let mut fallen = Vec::new();
        for landing in landed {
            match landing {
                Landing::Confirmed(landed) => confirmed.push(landed),
                Landing::Fell { answer, error } => fallen.extend(error.map(|error| (answer, error))),
            }
        }
        for (answer, outcome) in returns.judge(confirmed) {
            // Who no longer waits has given the message up; its row is settled otherwise.
            let _ = answer.send(outcome);
        }
        if let Some((_, error)) = fallen.first() {
            // All that was on the wire fell at once; what is still flying was on its way there.
            let open = fallen.len() + flying.len();
            careful.fell(open, error);
            if open == 1 {
                for (answer, error) in fallen {
                    let _ = answer.send(Outcome::Refused(error));
                }
            }
            return;
        }
        if !channel.status().connected() {
            return;
        }
    }
}

/// From the wire to the confirm.
async fn fly(channel: Channel, exchange: ShortString, letter: Letter) -> Landing {
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
        Ok(Confirmation::NotRequested) => return Landing::Fell { answer, error: None },
        Err(error) => {
            debug!(%error, "publish lost with its channel");
            return Landing::Fell { answer, error: over_a_letter(&error) };
        }
    };
    let carried = back.map(|back| {
        let returned = back.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
        (returned, format!("{} {}", back.reply_code, back.reply_text))
    });
    Landing::Confirmed(Landed { id, acked, carried, answer })
}

/// Whether the broker closed the channel (and not the connection) over a letter, and in which words. A missing exchange is no
/// letter's fault: the next channel looks after it.
fn over_a_letter(error: &lapin::Error) -> Option<String> {
    const NOT_FOUND: u16 = 404;
    match error.kind() {
        lapin::ErrorKind::ProtocolError(told) if error.is_amqp_soft_error() && told.get_id() != NOT_FOUND => {
            Some(format!("{} {}", told.get_id(), told.get_message()))
        }
        _ => None,
    }
}
