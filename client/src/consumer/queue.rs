//! The queue: declared where the account may, else looked at.
//!
//! Guarantees: what is there with other properties is named, and not touched. A passive look does not see arguments: there the
//! operator's word must do.

use lapin::options::{QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{Connection, ErrorKind};

use super::settings::{ConsumerError, Settings};

/// Why the queue is not there.
pub(super) enum QueueError {
    /// The operator's to mend.
    Topology(ConsumerError),
    /// To be tried again.
    Amqp(lapin::Error),
}

impl From<lapin::Error> for QueueError {
    fn from(error: lapin::Error) -> Self {
        Self::Amqp(error)
    }
}

/// Sees to it that the queue is there, bound.
pub(super) async fn ensure(connection: &Connection, settings: &Settings) -> Result<(), QueueError> {
    let queue = &settings.queue;
    let mut arguments = FieldTable::default();
    for (name, value) in &settings.arguments {
        arguments.insert(name.clone(), value.clone());
    }
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let passive = QueueDeclareOptions { passive: true, ..durable };
    // A refusal closes its channel, so each try has one of its own.
    let declare = async |options, arguments| {
        let channel = connection.create_channel().await?;
        channel.queue_declare(queue.clone(), options, arguments).await?;
        // An answer to a close is of no use to us; the channel goes with its connection at the latest.
        let _ = channel.close(200, "".into()).await;
        Ok(())
    };
    match declare(durable, arguments).await {
        Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => {
            declare(passive, FieldTable::default())
                .await
                .map_err(|error| judged(queue.as_str(), settings, error))?;
        }
        declared => declared.map_err(|error| judged(queue.as_str(), settings, error))?,
    }
    for (exchange, pattern) in &settings.bindings {
        let channel = connection.create_channel().await?;
        let options = QueueBindOptions::default();
        let bound = channel.queue_bind(
            queue.clone(),
            exchange.clone(),
            pattern.clone(),
            options,
            FieldTable::default(),
        );
        match bound.await {
            // Whether somebody else has bound it cannot be asked.
            Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => {}
            bound => {
                bound?;
                let _ = channel.close(200, "".into()).await;
            }
        }
    }
    Ok(())
}

/// What the broker says of the queue is the operator's to mend; everything else passes.
fn judged(queue: &str, settings: &Settings, error: lapin::Error) -> QueueError {
    let words = match error.kind() {
        ErrorKind::ProtocolError(said) => said.get_message().to_string(),
        _ => return QueueError::Amqp(error),
    };
    let text = if refused_with(&error, &AMQPSoftError::NOTFOUND) {
        // A quorum queue without its leader is said to be missing, too, while the broker starts.
        if words.contains("no queue") {
            format!("queue {queue:?} is not there, and this account may not declare it")
        } else {
            return QueueError::Amqp(error);
        }
    } else if refused_with(&error, &AMQPSoftError::PRECONDITIONFAILED) {
        format!(
            "queue {queue:?} is there with other properties than x-dead-letter-exchange {:?}, x-dead-letter-routing-key \
             \"dlq.{queue}\", durable: {words}",
            settings.dlx
        )
    } else {
        return QueueError::Amqp(error);
    };
    QueueError::Topology(ConsumerError::Topology(text))
}

fn refused_with(error: &lapin::Error, wanted: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(refusal) if *refusal.kind() == AMQPErrorKind::Soft(wanted.clone()))
}
