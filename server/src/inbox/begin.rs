//! BeginConsume: one transaction decides, and is done again if somebody was faster.
//!
//! Two statements for a message that is new, and a handful for one that is not: looked at, its ticket asked (in two statements, as
//! every ticket is), decided ([`decide`]), written from the state that was looked at. A start under a ticket need not be on disk:
//! the caller's own COMMIT comes later in the same log. Everything else that somebody relies on is flushed before it is said.

use holdfast_proto::consumption::OPEN_RETRY;

use super::decide::{self, Answer, Step};
use super::{Begun, Binding, Delivery, Desk, Refused, Round, rounds, sql};
use crate::db::{self, Begin};
use crate::tickets;

impl Desk {
    /// Begins to process a delivery, or tells why not to.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn begin(&self, delivery: &Delivery) -> Result<Begun, Refused> {
        self.knows(&delivery.key.queue)?;
        // Whoever has the row locked works on it: a handler in the service's own process, say.
        let busy = || Ok(Begun::InProgress(OPEN_RETRY));
        let begun = rounds(|| self.round(delivery), busy).await;
        let outcome = match &begun {
            Ok(Begun::Process { .. }) => "process",
            Ok(Begun::Duplicate(_)) => "duplicate",
            Ok(Begun::InProgress(_)) => "in_progress",
            Ok(Begun::DeadLetter(_)) => "dead_letter",
            Err(_) => "refused",
        };
        self.metrics.inbox.begun(&delivery.key.queue, outcome);
        begun
    }

    async fn round(&self, delivery: &Delivery) -> Result<Round<Begun>, db::Error> {
        let kind = match delivery.binding {
            // Bound only while the ticket's lock is held: it must end within a minute, as a stage.
            Binding::Ticket(_) => {
                self.stir();
                Begin::Stage
            }
            Binding::Lease { .. } => Begin::Durable,
        };
        let mut tx = self.pool.begin(kind).await?;
        let (round, flush) = match work(tx.conn(), delivery).await {
            Ok(done) => done,
            Err(error) => return tx.finish(Err(error)).await,
        };
        match round {
            Round::Raced => tx.rollback().await,
            _ if flush == Flush::No => tx.commit().await?,
            _ => tx.commit_after(sql::SYNCHRONOUS).await?,
        }
        if let Round::Done((begun, ended)) = round {
            for (outcome, took) in ended {
                self.metrics.inbox.ended(outcome, took);
            }
            return Ok(Round::Done(begun));
        }
        Ok(match round {
            Round::Refused(refused) => Round::Refused(refused),
            _ => Round::Raced,
        })
    }
}

/// Whether the commit must wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    Yes,
    No,
}

/// Starts that ended with this call, and how long the processed one took.
type Ends = Vec<(&'static str, Option<f64>)>;

async fn work(conn: &mut db::Conn, delivery: &Delivery) -> Result<(Round<(Begun, Ends)>, Flush), db::Error> {
    let flush_start = match delivery.binding {
        Binding::Ticket(_) => Flush::No,
        Binding::Lease { .. } => Flush::Yes,
    };
    if let Some(lease_until) = sql::begin(conn, delivery).await? {
        let begun = Begun::Process { attempt: 1, generation: 1, lease_until };
        return Ok((Round::Done((begun, Ends::new())), flush_start));
    }
    let row = sql::look(conn, &delivery.key).await?;
    // Decided row first, ticket second.
    let mine = match delivery.binding {
        Binding::Ticket(ticket) => Some(ticket),
        Binding::Lease { .. } => None,
    };
    let theirs = row.as_ref().and_then(|row| row.ticket);
    let mut asked: Vec<i64> = mine.into_iter().chain(theirs).collect();
    asked.sort_unstable();
    asked.dedup();
    let verdicts = tickets::ask(conn, &asked).await?;
    let Some(row) = row else {
        // Not begun, and nobody else's: so it was the ticket; or somebody's was there and is gone.
        let open = mine.is_none_or(|ticket| verdicts.open.contains(&ticket));
        return Ok((if open { Round::Raced } else { Round::Refused(Refused::TicketNotOpen) }, Flush::No));
    };
    let step = match decide::begin(&row, delivery, &verdicts) {
        Ok(step) => step,
        Err(refused) => return Ok((Round::Refused(refused), Flush::No)),
    };
    let ended = ended_by(&row, &step);
    let (after, said) = match step {
        Step::Say(answer) => {
            let flush = match answer {
                // An ack, or a letter, is built on it; whoever wrote it may not have waited for the disk.
                Answer::Duplicate | Answer::DeadLetter { .. } => {
                    sql::flush(conn).await?;
                    Flush::Yes
                }
                Answer::Process { .. } | Answer::InProgress(_) => Flush::No,
            };
            let told = answer.told(&delivery.key, row.epoch, row.lease_until, row.processed_at);
            return Ok((told.map_or(Round::Raced, |begun| Round::Done((begun, Ends::new()))), flush));
        }
        Step::Write(after, answer) => (after, Ok(answer)),
        Step::WriteAndRefuse(after, refused) => (after, Err(refused)),
    };
    let Some(written) = sql::write(conn, &delivery.key, &row, &after).await? else {
        return Ok((Round::Raced, Flush::No));
    };
    let answer = match said {
        Ok(answer) => answer,
        Err(refused) => return Ok((Round::Refused(refused), Flush::Yes)),
    };
    let flush = match answer {
        // What it took over was counted, too; that may be forgotten with the start, by a crash that forgets both.
        Answer::Process { .. } => flush_start,
        _ => Flush::Yes,
    };
    let told = answer.told(&delivery.key, written.epoch, written.lease_until, written.processed_at);
    let ended = ended.into_iter().map(|outcome| (outcome, written.took)).collect();
    Ok((told.map_or(Round::Raced, |begun| Round::Done((begun, ended))), flush))
}

/// How an earlier start ended, if it is this call that found out.
fn ended_by(row: &sql::Row, step: &Step<Answer>) -> Option<&'static str> {
    let (Step::Write(after, _) | Step::WriteAndRefuse(after, _)) = step else { return None };
    if after.processed {
        return Some("processed");
    }
    let begins_or_ends = after.begins || after.ended != row.ended;
    if row.ticket.is_some() && begins_or_ends {
        return Some("rolled_back");
    }
    (row.lease_until.is_some() && begins_or_ends).then_some("lapsed")
}
