//! From valid events to the rows that are inserted.

use holdfast_proto::envelope::Valid;
use time::OffsetDateTime;

use super::super::sql;

/// The rows of events, each with its ticket or none, in the order given.
pub(super) fn rows_of<'a>(
    events: impl Iterator<Item = (Option<i64>, &'a Valid)>,
    source: &str,
    now: OffsetDateTime,
) -> sql::NewRows {
    let mut rows = sql::NewRows::default();
    for (ticket, event) in events {
        rows.ids.push(event.id);
        rows.aggregate_ids.push(event.aggregate_id);
        rows.event_types.push(event.event_type.clone());
        rows.envelopes.push(event.envelope_text(source, now));
        rows.ordering_keys.push(event.ordering_key.clone());
        rows.content_hashes.push(event.content_hash.to_vec());
        rows.tickets.push(ticket);
    }
    rows
}
