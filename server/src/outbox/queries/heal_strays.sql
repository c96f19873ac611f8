-- The minute's sweep: rows at the head of the claim's path that claim to be in flight for two leases. heal.sql has every batch
-- after one, so these are in none: somebody wrote claimed_at by hand, or we have lost a batch. They would never leave.
WITH head AS MATERIALIZED (
    SELECT id, claimed_at FROM holdfast.event_outbox
    WHERE admitted_at IS NULL AND ticket IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
      AND published_at IS NULL
    ORDER BY seq LIMIT 10000
), stray AS MATERIALIZED (
    SELECT o.id FROM head CROSS JOIN LATERAL (
        SELECT id FROM holdfast.event_outbox
        WHERE id = head.id AND claimed_at IS NOT DISTINCT FROM head.claimed_at AND num_nonnulls(published_at) = 0
        FOR UPDATE SKIP LOCKED) AS o
    WHERE head.claimed_at < now() - 2 * $1::float8 * interval '1 second'
       OR head.claimed_at > now() + $1::float8 * interval '1 second'
)
UPDATE holdfast.event_outbox AS o
SET claimed_at = NULL, claimed_by = NULL, is_head = false,
    admitted_at = CASE WHEN o.lone_claims >= 2 THEN now() END, next_attempt_at = CASE WHEN o.lone_claims >= 2 THEN now() END
-- Not a join: nothing tells the planner how few these are, and it would read the whole table.
WHERE o.id = ANY (ARRAY(SELECT id FROM stray))
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.ordering_key
