//! From valid events to the rows that are inserted.

use holdfast_proto::envelope::Valid;
use time::OffsetDateTime;

use super::super::holds::Pair;
use super::super::sql;

/// The rows of events, each with its ticket or none and what it is held for, in the order given. Without `now` the statement must add the time of
/// those that have none.
pub(super) fn rows_of<'a>(
    events: impl Iterator<Item = (Option<i64>, Option<&'a Pair>, &'a Valid)>,
    source: &str,
    now: Option<OffsetDateTime>,
) -> sql::NewRows {
    let mut rows = sql::NewRows::default();
    for (ticket, hold, event) in events {
        rows.ids.push(event.id);
        rows.aggregate_ids.push(event.aggregate_id);
        rows.event_types.push(event.event_type.clone());
        rows.envelopes.push(match now {
            Some(now) => event.envelope_text(source, now),
            None => event.envelope_text_for_insert(source),
        });
        rows.need_time.push(now.is_none() && event.needs_time());
        rows.ordering_keys.push(event.ordering_key.clone());
        rows.content_hashes.push(event.content_hash.to_vec());
        rows.tickets.push(ticket);
        rows.hold_operation_ids.push(hold.map(|pair| pair.operation_id.clone()));
        rows.hold_generations.push(hold.map(|pair| pair.generation));
    }
    rows
}
