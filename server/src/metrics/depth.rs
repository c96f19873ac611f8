//! What lies in a service's database, as last measured. Every replica measures the same rows: sums over replicas mean
//! nothing, take the maximum.

use prometheus::{IntGauge, IntGaugeVec};

use super::declare::Declare;

pub(super) struct Families {
    rows: IntGaugeVec,
    oldest: IntGaugeVec,
    beyond_grace: IntGaugeVec,
    keys_blocked: IntGaugeVec,
    rows_behind: IntGaugeVec,
    tickets: IntGaugeVec,
    table_bytes: IntGaugeVec,
    table_rows: IntGaugeVec,
    measured: IntGaugeVec,
}

impl Families {
    pub(super) fn declare(d: &mut Declare<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            rows: d.gauges(
                "outbox_rows",
                "Unpublished rows by state (unresolved, held, parked, in_flight, unroutable, backing_off, aside, pending). Exact up to 5,000 unpublished rows, above that PostgreSQL's estimates.",
                &["service", "state"],
            )?,
            oldest: d.gauges(
                "outbox_oldest_age_seconds",
                "Age of the oldest row of that state among the 5,000 oldest unpublished rows; 0 without one.",
                &["service", "state"],
            )?,
            beyond_grace: d.gauges(
                "outbox_unpublished_beyond_grace",
                "Rows that committed over 15 minutes ago, are not held and not published; at most 5,000 are counted.",
                &["service"],
            )?,
            keys_blocked: d.gauges(
                "outbox_keys_blocked",
                "Ordering keys with rows set aside behind an earlier row; at most 1,000 are counted.",
                &["service"],
            )?,
            rows_behind: d.gauges(
                "outbox_rows_behind",
                "Rows set aside behind an earlier row of their key, over all keys; as holdfast_outbox_rows.",
                &["service"],
            )?,
            tickets: d.gauges(
                "tickets",
                "Rows of the ticket table: open transactions, and decided ones that are not swept yet; PostgreSQL's estimate.",
                &["service"],
            )?,
            table_bytes: d.gauges(
                "table_size_bytes",
                "Size of a table with its indexes and TOAST.",
                &["service", "table"],
            )?,
            table_rows: d.gauges("table_rows", "Rows of a table; PostgreSQL's estimate.", &["service", "table"])?,
            measured: d.gauges(
                "outbox_measured_timestamp_seconds",
                "When the outbox metrics of this service were last measured, by this process's clock. An old value means that they are old, too.",
                &["service"],
            )?,
        })
    }

    pub(super) fn service(&self, service: &str) -> Depth {
        let label = &[service];
        Depth {
            service: service.to_owned(),
            rows: self.rows.clone(),
            oldest: self.oldest.clone(),
            table_bytes: self.table_bytes.clone(),
            table_rows: self.table_rows.clone(),
            beyond_grace: self.beyond_grace.with_label_values(label),
            keys_blocked: self.keys_blocked.with_label_values(label),
            rows_behind: self.rows_behind.with_label_values(label),
            tickets: self.tickets.with_label_values(label),
            measured: self.measured.with_label_values(label),
        }
    }
}

/// The outbox of one service as last measured.
#[derive(Clone, Debug)]
pub struct Depth {
    service: String,
    rows: IntGaugeVec,
    oldest: IntGaugeVec,
    table_bytes: IntGaugeVec,
    table_rows: IntGaugeVec,
    /// Committed rows that should have been published long ago.
    pub beyond_grace: IntGauge,
    /// Ordering keys with rows set aside.
    pub keys_blocked: IntGauge,
    /// Rows set aside.
    pub rows_behind: IntGauge,
    /// Rows of the ticket table.
    pub tickets: IntGauge,
    /// Seconds since the epoch of the last measurement.
    pub measured: IntGauge,
}

impl Depth {
    /// Rows of a state, and the age of the oldest in seconds.
    pub fn state(&self, state: &str, rows: i64, oldest_seconds: i64) {
        let labels = [self.service.as_str(), state];
        self.rows.with_label_values(&labels).set(rows);
        self.oldest.with_label_values(&labels).set(oldest_seconds);
    }

    /// A table's size with all that belongs to it, and its rows.
    pub fn table(&self, table: &str, bytes: i64, rows: i64) {
        let labels = [self.service.as_str(), table];
        self.table_bytes.with_label_values(&labels).set(bytes);
        self.table_rows.with_label_values(&labels).set(rows);
    }
}
