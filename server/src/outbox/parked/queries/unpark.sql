-- Parked rows are fresh again, as if just staged; their place in the order and their attempts stay. Under the service's lock.
-- Rows that somebody else has locked are left alone.
WITH parked AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE id = ANY ($1::uuid[]) AND num_nonnulls(parked_at) = 1
      AND num_nonnulls(ticket, hold_operation_id, claimed_at, published_at) = 0
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET parked_at = NULL, parked_reason = NULL, lone_claims = 0, admitted_at = NULL, next_attempt_at = NULL, unroutable = false
FROM parked
WHERE o.id = parked.id AND num_nonnulls(o.parked_at) = 1
  AND num_nonnulls(o.ticket, o.hold_operation_id, o.claimed_at, o.published_at) = 0
RETURNING o.id
