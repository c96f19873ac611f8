//! The dead-letter topology, as far as a letter needs it: declared where the account may, else looked at.
//!
//! The exchange is a durable topic one. The queue is a quorum queue that takes `dlq.#`, with a delivery limit and another queue
//! behind it, and a last one behind that: a letter that kills whoever receives it is handed back a few times and then leaves its
//! neighbours' way, and none is ever dropped (pitfalls, "RabbitMQ and lapin"). Guarantees: what is there with other properties is
//! named, object and argument, and not touched. Does not: delete anything, or see a binding. Design, section 7.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Connection, ErrorKind, ExchangeKind};

use super::link::LinkError;

/// What letters are published to, and where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The dead-letter exchange.
    pub dlx: String,
    /// The dead-letter queue; empty: somebody else's, neither declared nor looked at.
    pub dlq: String,
}

/// Returns after which a letter is put into the parking queue.
const DELIVERY_LIMIT: i64 = 50;
/// Returns after which the parking queue gives one up to the poison queue.
const PARKING_LIMIT: i64 = 5;

/// A quorum queue, and where it puts what was returned too often.
struct Queue {
    name: String,
    behind: Option<(String, i64)>,
}

impl Topology {
    /// From behind: a queue is there before anything is put into it.
    fn queues(&self) -> Vec<Queue> {
        if self.dlq.is_empty() {
            return Vec::new();
        }
        let (parking, poison) = (format!("{}.parking", self.dlq), format!("{}.poison", self.dlq));
        vec![
            Queue { name: poison.clone(), behind: None },
            Queue { name: parking.clone(), behind: Some((poison, PARKING_LIMIT)) },
            Queue { name: self.dlq.clone(), behind: Some((parking, DELIVERY_LIMIT)) },
        ]
    }

    /// Sees to it that letters have somewhere to go.
    pub(super) async fn ensure(&self, connection: &Connection) -> Result<(), LinkError> {
        let dlx = short(&self.dlx)?;
        self.exchange(connection, &dlx).await?;
        for queue in self.queues() {
            self.queue(connection, &queue).await?;
        }
        if !self.dlq.is_empty() {
            let channel = connection.create_channel().await?;
            let options = QueueBindOptions::default();
            let bound =
                channel.queue_bind(short(&self.dlq)?, dlx, "dlq.#".into(), options, FieldTable::default());
            match bound.await {
                // Whether somebody else has bound it cannot be asked; each letter tells.
                Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => {}
                bound => {
                    bound?;
                    // The channel goes with its connection at the latest.
                    let _ = channel.close(200, "".into()).await;
                }
            }
        }
        Ok(())
    }

    async fn exchange(&self, connection: &Connection, dlx: &ShortString) -> Result<(), LinkError> {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let passive = ExchangeDeclareOptions { passive: true, ..durable };
        let declare = async |options| {
            // A refusal closes its channel, so each try has one of its own.
            let channel = connection.create_channel().await?;
            channel
                .exchange_declare(dlx.clone(), ExchangeKind::Topic, options, FieldTable::default())
                .await?;
            let _ = channel.close(200, "".into()).await;
            Ok(())
        };
        match declare(durable).await {
            Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => {
                declare(passive).await.map_err(|error| judged("exchange", &self.dlx, error))
            }
            declared => declared.map_err(|error| judged("exchange", &self.dlx, error)),
        }
    }

    async fn queue(&self, connection: &Connection, queue: &Queue) -> Result<(), LinkError> {
        let name = short(&queue.name)?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        if let Some((behind, limit)) = &queue.behind {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(*limit));
            arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
            arguments
                .insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(behind.as_str().into()));
        }
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let passive = QueueDeclareOptions { passive: true, ..durable };
        let declare = async |options, arguments| {
            let channel = connection.create_channel().await?;
            channel.queue_declare(name.clone(), options, arguments).await?;
            let _ = channel.close(200, "".into()).await;
            Ok(())
        };
        match declare(durable, arguments).await {
            // Whose account may not declare has had it declared; what lies behind the queue is its operator's.
            Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => {
                if queue.name != self.dlq {
                    return Ok(());
                }
                declare(passive, FieldTable::default())
                    .await
                    .map_err(|error| judged("queue", &queue.name, error))
            }
            declared => declared.map_err(|error| judged("queue", &queue.name, error)),
        }
    }
}

fn short(name: &str) -> Result<ShortString, LinkError> {
    ShortString::try_new(name).map_err(|_| LinkError::Topology(format!("{name:?} is over 255 bytes")))
}

/// What the broker says of an object is the operator's to mend; everything else passes.
fn judged(kind: &str, name: &str, error: lapin::Error) -> LinkError {
    let words = match error.kind() {
        ErrorKind::ProtocolError(said) => said.get_message().to_string(),
        _ => return LinkError::Amqp(error),
    };
    if refused_with(&error, &AMQPSoftError::NOTFOUND) {
        LinkError::Topology(format!("{kind} {name:?} is not there, and this account may not declare it"))
    } else if refused_with(&error, &AMQPSoftError::PRECONDITIONFAILED) {
        LinkError::Topology(format!("{kind} {name:?} is there with other properties: {words}"))
    } else if error.is_amqp_soft_error() {
        LinkError::Topology(format!("{kind} {name:?}: {words}"))
    } else {
        LinkError::Amqp(error)
    }
}

pub(super) fn refused_with(error: &lapin::Error, wanted: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(refusal) if *refusal.kind() == AMQPErrorKind::Soft(wanted.clone()))
}
