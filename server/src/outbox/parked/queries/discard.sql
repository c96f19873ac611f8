-- Parked rows go, counted in the same transaction. Under the service's lock; their followers are looked at in a later
-- statement. Rows that somebody else has locked are left alone. $2: the tally's slot.
WITH parked AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE id = ANY ($1::uuid[]) AND num_nonnulls(parked_at) = 1
      AND num_nonnulls(ticket, hold_operation_id, claimed_at, published_at) = 0
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.event_outbox AS o USING parked
    WHERE o.id = parked.id AND num_nonnulls(o.parked_at) = 1
      AND num_nonnulls(o.ticket, o.hold_operation_id, o.claimed_at, o.published_at) = 0
    RETURNING o.id, o.ordering_key
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'discarded_by_admin', $2, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT id, ordering_key FROM gone
