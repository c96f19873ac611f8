-- Published rows that are past their retention go, the oldest first, at most $2, counted in the same transaction. $1: the
-- retention in seconds. $3: the tally's slot. A row that somebody has locked (a replay, say) is left for the next time; what
-- never waits needs no order. `is_head`: its followers were not looked at yet. No lock of the drain: such rows are in nobody's way.
WITH old AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE published_at IS NOT NULL AND created_at < now() - $1::float8 * interval '1 second'
      AND num_nonnulls(ticket, hold_operation_id, parked_at, claimed_at) = 0 AND NOT is_head
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.event_outbox AS o USING old
    WHERE o.id = old.id AND num_nonnulls(o.published_at) = 1 AND o.created_at < now() - $1::float8 * interval '1 second'
      AND num_nonnulls(o.ticket, o.hold_operation_id, o.parked_at, o.claimed_at) = 0 AND NOT o.is_head
    RETURNING o.id
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'pruned', $3, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT count(*) FROM gone
