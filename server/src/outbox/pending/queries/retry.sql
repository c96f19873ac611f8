-- Rows that back off, or wait for a queue, are due now: candidates of the next pass, with their attempts and their place in the
-- order. They stay what they are until then: a row that no queue takes goes out as its type's probe does. Under the service's
-- lock. Rows that somebody else has locked are left alone.
WITH waiting AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE id = ANY ($1::uuid[]) AND num_nonnulls(ticket, hold_operation_id, parked_at, claimed_at, published_at) = 0
      AND next_attempt_at > now()
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o SET next_attempt_at = now()
FROM waiting
WHERE o.id = waiting.id AND num_nonnulls(o.ticket, o.hold_operation_id, o.parked_at, o.claimed_at, o.published_at) = 0
  AND o.next_attempt_at > now()
RETURNING o.id
