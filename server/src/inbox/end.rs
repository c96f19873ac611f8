//! CompleteConsume and FailConsume: a start ends once, by its generation. Everything that is said is on disk.

use holdfast_proto::consumption;

use super::decide::{self, Before, Step, Then};
use super::{Completed, Death, Desk, FailKind, Key, Next, Refused, Round, Token, rounds, sql};
use crate::db::{self, Begin};
use crate::tickets::{self, Verdicts};

/// What was decided, beside what is known of the row after it.
struct Done<T> {
    said: T,
    epoch: i64,
    processed_at: Option<time::OffsetDateTime>,
    took: Option<f64>,
    written: bool,
}

impl Desk {
    /// Marks a start as the processed one, or makes sure that it is.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn complete(&self, key: &Key, generation: i64) -> Result<Completed, Refused> {
        self.knows(&key.queue)?;
        let decide = |row: &sql::Row, verdicts: &Verdicts| decide::complete(row, generation, verdicts);
        let done = rounds(|| self.ending(key, decide), || Err(Refused::Contended)).await?;
        if done.written {
            self.metrics.inbox.ended("processed", done.took);
        }
        let Before(before) = done.said;
        let at = done.processed_at.ok_or(Refused::Contended)?;
        Ok(Completed { before, at })
    }

    /// Counts a start as failed, as `kind` says; tells what comes next.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn fail(
        &self,
        key: &Key,
        generation: i64,
        kind: FailKind,
        error: &str,
    ) -> Result<Next, Refused> {
        self.knows(&key.queue)?;
        let error = &consumption::legible(error);
        let decide =
            |row: &sql::Row, verdicts: &Verdicts| decide::fail(row, generation, kind, error, verdicts);
        let done = rounds(|| self.ending(key, decide), || Err(Refused::Contended)).await?;
        if done.written {
            let outcome = match (done.said, kind) {
                (Then::Duplicate, _) => "processed",
                (_, FailKind::GivenBack) => "given_back",
                _ => "failed",
            };
            self.metrics.inbox.ended(outcome, done.took);
        }
        Ok(match done.said {
            Then::Retry(failures) => Next::Retry(failures),
            Then::DeadLetter { cause, surfaced } => {
                let token = Token { key: key.clone(), epoch: done.epoch };
                Next::DeadLetter(Death { token, cause, surfaced })
            }
            Then::Duplicate => Next::Duplicate(done.processed_at.ok_or(Refused::Contended)?),
        })
    }

    async fn ending<T>(
        &self,
        key: &Key,
        decide: impl Fn(&sql::Row, &Verdicts) -> Result<Step<T>, Refused>,
    ) -> Result<Round<Done<T>>, db::Error> {
        let mut tx = self.pool.begin(Begin::Durable).await?;
        let work = work(tx.conn(), key, decide).await;
        match work {
            Ok(Round::Raced) => {
                tx.rollback().await;
                Ok(Round::Raced)
            }
            work => tx.finish(work).await,
        }
    }
}

async fn work<T>(
    conn: &mut db::Conn,
    key: &Key,
    decide: impl Fn(&sql::Row, &Verdicts) -> Result<Step<T>, Refused>,
) -> Result<Round<Done<T>>, db::Error> {
    let Some(row) = sql::look(conn, key).await? else { return Ok(Round::Refused(Refused::NotFound)) };
    let asked: Vec<i64> = row.ticket.into_iter().collect();
    let verdicts = tickets::ask(conn, &asked).await?;
    let step = match decide(&row, &verdicts) {
        Ok(step) => step,
        Err(refused) => return Ok(Round::Refused(refused)),
    };
    let (after, said) = match step {
        Step::Say(said) => {
            // As good a promise as a mark of our own: whoever wrote it may not have waited for the disk.
            sql::flush(conn).await?;
            let (epoch, processed_at) = (row.epoch, row.processed_at);
            return Ok(Round::Done(Done { said, epoch, processed_at, took: None, written: false }));
        }
        Step::Write(after, said) => (after, Ok(said)),
        Step::WriteAndRefuse(after, refused) => (after, Err(refused)),
    };
    let Some(written) = sql::write(conn, key, &row, &after).await? else { return Ok(Round::Raced) };
    Ok(match said {
        Ok(said) => Round::Done(Done {
            said,
            epoch: written.epoch,
            processed_at: written.processed_at,
            took: written.took,
            written: true,
        }),
        Err(refused) => Round::Refused(refused),
    })
}
