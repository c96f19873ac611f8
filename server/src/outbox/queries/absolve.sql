-- Outcomes that came after their leases were healed (the database was away for longer than a lease): the publisher lived, so
-- the claim did not end without one. What is locked keeps the count.
WITH late AS MATERIALIZED (
    SELECT o.id FROM unnest($1::uuid[], $2::bigint[]) AS s (id, generation) CROSS JOIN LATERAL (
        SELECT id FROM holdfast.event_outbox
        WHERE id = s.id AND claim_generation = s.generation AND lone_claims > 0
          AND num_nonnulls(claimed_at, published_at, parked_at) = 0
        FOR UPDATE SKIP LOCKED) AS o
)
UPDATE holdfast.event_outbox AS o SET lone_claims = o.lone_claims - 1
WHERE o.id = ANY (ARRAY(SELECT id FROM late)) AND o.lone_claims > 0
  AND num_nonnulls(o.claimed_at, o.published_at, o.parked_at) = 0
