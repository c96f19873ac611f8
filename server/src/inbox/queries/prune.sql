-- Rows that nobody has touched for as long as the inbox remembers, the oldest first, at most $2. $1: the retention in seconds. Never
-- one that is begun: its ticket is undecided, or its lease runs. A row that somebody has locked is left for the next time; what
-- never waits needs no order.
WITH old AS MATERIALIZED (
    SELECT envelope_id, consumer_queue FROM holdfast.event_inbox
    WHERE received_at < now() - $1::float8 * interval '1 second'
      AND greatest(received_at, begun_at, processed_at, dead_lettered_at, lease_until)
          < now() - $1::float8 * interval '1 second'
      AND num_nonnulls(ticket) = 0
    ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.event_inbox AS i USING old
    WHERE i.envelope_id = old.envelope_id AND i.consumer_queue = old.consumer_queue
      AND i.received_at < now() - $1::float8 * interval '1 second'
      AND greatest(i.received_at, i.begun_at, i.processed_at, i.dead_lettered_at, i.lease_until)
          < now() - $1::float8 * interval '1 second'
      AND num_nonnulls(i.ticket) = 0
    RETURNING 1
)
SELECT count(*) FROM gone
