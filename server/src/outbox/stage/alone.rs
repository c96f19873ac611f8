//! One request in a transaction of its own: the path for whatever the group could not take. Here ids that are there
//! already are answered by the table of [`same_id`].

use std::collections::HashMap;

use uuid::Uuid;

use super::super::sql;
use super::rows::rows_of;
use super::same_id::{self, Decision};
use super::{Answer, Options, Outcome, Refused, Request};
use crate::db::{self, Kind, Pool};
use crate::metrics::ServiceMetrics;
use crate::tickets::{self, Verdicts};

/// A row that appears between our look and our insert is looked at again; after so many times it is contention.
const ROUNDS: u32 = 3;

/// What one round came to.
enum Round {
    Done {
        outcomes: Vec<Outcome>,
        replaced: u64,
    },
    Refused(Refused),
    /// Somebody inserted one of the ids meanwhile.
    Raced,
}

pub(super) async fn stage(
    pool: &Pool,
    options: &Options,
    metrics: &ServiceMetrics,
    request: &Request,
) -> Answer {
    for _ in 0..ROUNDS {
        match db::within(options.limit, round(pool, options, request)).await {
            Ok(Round::Done { outcomes, replaced }) => {
                metrics.tickets.discarded("rolled_back", replaced);
                return Ok(outcomes);
            }
            Ok(Round::Refused(refused)) => return Err(refused),
            Ok(Round::Raced) => {}
            // A deadlock's victim comes again at once; a lock time-out has waited long enough.
            Err(error) if error.kind == Kind::Contended && error.sqlstate.as_deref() != Some("55P03") => {}
            Err(error) if error.kind == Kind::Contended => return Err(Refused::Busy),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refused::Busy)
}

async fn round(pool: &Pool, options: &Options, request: &Request) -> Result<Round, db::Error> {
    let mut tx = pool.begin(request.begin()).await?;
    match work(tx.conn(), options, request).await {
        Ok(done @ Round::Done { .. }) => tx.finish(Ok(done)).await,
        Ok(other) => {
            tx.rollback().await;
            Ok(other)
        }
        Err(error) => tx.finish(Err(error)).await,
    }
}

async fn work(conn: &mut db::Conn, options: &Options, request: &Request) -> Result<Round, db::Error> {
    let ids: Vec<Uuid> = request.events.iter().map(|e| e.id).collect();
    // Decided row first, ticket second: a request whose commit was seen by the resolver is a duplicate, although its
    // ticket is no longer open.
    let existing: HashMap<Uuid, sql::Existing> =
        sql::existing(conn, &ids).await?.into_iter().map(|row| (row.id, row)).collect();
    let mut asked: Vec<i64> = existing.values().filter_map(|row| row.ticket).chain(request.ticket).collect();
    asked.sort_unstable();
    asked.dedup();
    let verdicts = tickets::ask(conn, &asked).await?;
    let plan = match plan(request, &existing, &verdicts) {
        Ok(plan) => plan,
        // "Rolled back" was told from a missing ticket row. If the resolver has decided the event meanwhile, the row may be
        // missing because it was swept: only an event that still names the ticket proves it.
        Err(Refused::TicketRolledBack) if moved_on(conn, &ids, request.ticket, &existing).await? => {
            return Ok(Round::Raced);
        }
        Err(refused) => return Ok(Round::Refused(refused)),
    };
    let mut replaced = 0;
    if !plan.replace_ids.is_empty() {
        replaced = sql::replace_rolled_back(conn, &plan.replace_ids, &plan.replace_tickets).await?;
    }
    if plan.new.iter().any(|new| *new) {
        let now = sql::now(conn).await?;
        let new = request.events.iter().zip(&plan.new).filter(|(_, new)| **new).map(|(event, _)| event);
        let rows = rows_of(new.map(|event| (request.ticket, event)), &options.source, Some(now));
        if sql::insert(conn, &rows).await?.len() < rows.ids.len() {
            return Ok(Round::Raced);
        }
    }
    if request.ticket.is_none() && !plan.new.contains(&true) {
        // "Duplicate" is as good a promise as "staged": whoever committed that event may have done so asynchronously.
        sql::flush(conn).await?;
    }
    let outcomes =
        plan.new.iter().map(|new| if *new { Outcome::Staged } else { Outcome::Duplicate }).collect();
    Ok(Round::Done { outcomes, replaced })
}

/// Whether fewer of the events name the ticket than did.
async fn moved_on(
    conn: &mut db::Conn,
    ids: &[Uuid],
    ticket: Option<i64>,
    before: &HashMap<Uuid, sql::Existing>,
) -> Result<bool, db::Error> {
    let naming = |rows: &mut dyn Iterator<Item = &sql::Existing>| rows.filter(|r| r.ticket == ticket).count();
    let now = sql::existing(conn, ids).await?;
    Ok(naming(&mut now.iter()) < naming(&mut before.values()))
}

struct Plan {
    /// Per event: whether it is written.
    new: Vec<bool>,
    replace_ids: Vec<Uuid>,
    replace_tickets: Vec<i64>,
}

fn plan(
    request: &Request,
    existing: &HashMap<Uuid, sql::Existing>,
    verdicts: &Verdicts,
) -> Result<Plan, Refused> {
    let mut plan = Plan { new: Vec::new(), replace_ids: Vec::new(), replace_tickets: Vec::new() };
    for event in request.events.iter() {
        let decision = existing
            .get(&event.id)
            .map(|row| same_id::decide(row, request.ticket, &event.content_hash, verdicts))
            .transpose()?;
        if let Some(Decision::Replace(ticket)) = decision {
            plan.replace_ids.push(event.id);
            plan.replace_tickets.push(ticket);
        }
        plan.new.push(decision != Some(Decision::Duplicate));
    }
    if plan.new.contains(&true) && request.ticket.is_some_and(|ticket| !verdicts.open.contains(&ticket)) {
        return Err(Refused::TicketNotOpen);
    }
    Ok(plan)
}
