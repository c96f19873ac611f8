//! SurfaceDeadLetter: looked at, published and confirmed, then marked. No transaction and no connection is held over the broker.
//!
//! A crash, or a lost confirm, between the two leaves the row unmarked: the message is delivered again, and its second letter has
//! the first one's token.

use super::{Desk, LIMIT, Letter, Refused, Round, Surfaced, Token, rounds, sql};
use crate::broker::{DeadLetter, LetterError, Outcome};
use crate::db::{self, Begin};

impl Desk {
    /// Publishes a message whose series is over to the dead-letter exchange, and marks it.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn surface(&self, token: &Token, letter: Letter) -> Result<Surfaced, Refused> {
        self.knows(&token.key.queue)?;
        letter.check()?;
        let surfaced = self.published_and_marked(token, letter).await;
        let outcome = match &surfaced {
            Ok(Surfaced { before: false, .. }) => "surfaced",
            Ok(Surfaced { before: true, .. }) => "surfaced_before",
            Err(Refused::Unroutable { .. }) => "unroutable",
            Err(Refused::Broker { .. }) => "unconfirmed",
            Err(Refused::Topology(_)) => "topology",
            Err(_) => "refused",
        };
        self.metrics.inbox.letter(&token.key.queue, outcome);
        surfaced
    }

    async fn published_and_marked(&self, token: &Token, letter: Letter) -> Result<Surfaced, Refused> {
        let row = self.over(token).await?;
        if let Some(at) = row.dead_lettered_at {
            return Ok(Surfaced { before: true, at });
        }
        let cause = row.cause.ok_or(Refused::StaleLetter { published: false })?;
        let routing_key = format!("dlq.{}", token.key.queue);
        let wire = DeadLetter {
            routing_key: routing_key.clone(),
            message_id: token.key.envelope_id.to_string(),
            event_type: row.event_type.clone(),
            app_id: self.metrics.service().to_owned(),
            timestamp: u64::try_from(row.looked_at.unix_timestamp()).unwrap_or_default(),
            body: letter.wrapped(token, &row, cause),
        };
        match self.letters.publish(wire).await {
            Ok(Outcome::Confirmed) => {}
            Ok(Outcome::Returned(_)) => {
                let exchange = self.letters.exchange().to_owned();
                return Err(Refused::Unroutable { exchange, routing_key });
            }
            Ok(Outcome::Refused(words)) => {
                return Err(Refused::Topology(format!("the broker refuses the letter: {words}")));
            }
            Ok(Outcome::Unsendable(reason)) => return Err(Refused::Topology(reason.to_owned())),
            Ok(Outcome::Nacked) => {
                return Err(Refused::Broker { reason: "the broker did not take the letter", unknown: false });
            }
            Ok(Outcome::TimedOut | Outcome::Lost) => {
                return Err(Refused::Broker {
                    reason: "the broker did not confirm the letter",
                    unknown: true,
                });
            }
            Err(LetterError::Away) => {
                let reason = "the broker is away, or takes nothing at the moment";
                return Err(Refused::Broker { reason, unknown: false });
            }
            Err(LetterError::Topology(words)) => return Err(Refused::Topology(words)),
        }
        rounds(|| self.mark(token), || Err(Refused::Contended)).await
    }

    /// The row, its series being the token's and over.
    async fn over(&self, token: &Token) -> Result<sql::Row, Refused> {
        let row = db::within(LIMIT, async {
            let mut tx = self.pool.begin(Begin::Durable).await?;
            let work = async {
                let row = sql::look(tx.conn(), &token.key).await?;
                // The token's state is on disk before anything is published, whoever wrote it.
                sql::flush(tx.conn()).await?;
                Ok(row)
            }
            .await;
            tx.finish(work).await
        })
        .await?
        .ok_or(Refused::NotFound)?;
        let is_over = row.cause.is_some() && row.epoch == token.epoch && row.processed_at.is_none();
        if is_over { Ok(row) } else { Err(Refused::StaleLetter { published: false }) }
    }

    async fn mark(&self, token: &Token) -> Result<Round<Surfaced>, db::Error> {
        let mut tx = self.pool.begin(Begin::Durable).await?;
        let work = async {
            if let Some(at) = sql::surfaced(tx.conn(), &token.key, token.epoch).await? {
                return Ok(Round::Done(Surfaced { before: false, at }));
            }
            let row = sql::look(tx.conn(), &token.key).await?;
            let at = row.filter(|row| row.epoch == token.epoch).and_then(|row| row.dead_lettered_at);
            Ok(match at {
                // Another call of the same.
                Some(at) => {
                    sql::flush(tx.conn()).await?;
                    Round::Done(Surfaced { before: true, at })
                }
                None => Round::Refused(Refused::StaleLetter { published: true }),
            })
        }
        .await;
        tx.finish(work).await
    }
}
