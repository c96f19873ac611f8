//! A look at a broker, over a connection of its own that ends with it: for checks, never for publishing.

use std::time::Duration;

use lapin::options::ExchangeDeclareOptions;
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties, ExchangeKind};

use super::topology::refused_with;

/// What was seen of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// A durable topic exchange.
    There,
    /// It is there. Its kind is told only to who may declare it.
    ThereUnseen,
    /// It is not there.
    Missing,
    /// It is there, and is something else.
    OfAnotherKind,
}

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// No answer.
    #[error("the broker did not answer within {0:?}")]
    TimedOut(Duration),
    /// No connection, or a refusal.
    #[error("{0}")]
    Amqp(#[from] lapin::Error),
}

/// Connects and looks at the exchanges, in their order. Declares nothing that is not there.
///
/// # Errors
/// The broker cannot be reached within `patience`, or refuses the account.
pub async fn inspect(
    uri: AMQPUri,
    exchanges: &[ShortString],
    patience: Duration,
) -> Result<Vec<Exchange>, InspectError> {
    let looked = async {
        let properties = ConnectionProperties::default().with_connection_name("holdfast check".into());
        let connection = Connection::connect_uri(uri, properties).await?;
        let mut seen = Ok(Vec::new());
        for exchange in exchanges {
            match (look(&connection, exchange.clone()).await, &mut seen) {
                (Ok(one), Ok(all)) => all.push(one),
                (Err(error), _) => {
                    seen = Err(error);
                    break;
                }
                (Ok(_), Err(_)) => break,
            }
        }
        // It goes with us in any case.
        let _ = connection.close(200, "bye".into()).await;
        Ok(seen?)
    };
    tokio::time::timeout(patience, looked).await.unwrap_or(Err(InspectError::TimedOut(patience)))
}

/// A passive declare looks at the name alone; an active one with the same properties changes nothing and is refused if they
/// differ. A refusal closes its channel, so each has one of its own.
async fn look(connection: &Connection, name: ShortString) -> Result<Exchange, lapin::Error> {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let passive = ExchangeDeclareOptions { passive: true, ..durable };
    let declare = async |options| {
        let channel = connection.create_channel().await?;
        channel.exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default()).await
    };
    match declare(passive).await {
        Err(error) if refused_with(&error, &AMQPSoftError::NOTFOUND) => return Ok(Exchange::Missing),
        other => other?,
    }
    match declare(durable).await {
        Ok(()) => Ok(Exchange::There),
        Err(error) if refused_with(&error, &AMQPSoftError::PRECONDITIONFAILED) => Ok(Exchange::OfAnotherKind),
        Err(error) if refused_with(&error, &AMQPSoftError::ACCESSREFUSED) => Ok(Exchange::ThereUnseen),
        Err(error) => Err(error),
    }
}
