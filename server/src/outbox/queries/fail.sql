-- Refused, returned or timed out: the claim ends at once, and the row waits until its next attempt. Locked rows are
-- left as by stamp.sql. $6 as its $3.
WITH failed AS MATERIALIZED (
    SELECT o.id, o.claim_generation, f.error, f.delay, f.unroutable FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[], $3::text[], $4::float8[], $5::boolean[])
         AS f (id, generation, error, delay, unroutable) ON f.id = o.id AND f.generation = o.claim_generation
    WHERE num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET attempts = least(o.attempts, 2147483646) + 1, last_error = failed.error, unroutable = failed.unroutable,
    next_attempt_at = now() + failed.delay * interval '1 second',
    claimed_at = NULL, claimed_by = NULL, admitted_at = now(),
    is_head = (NOT $6 AND (o.ordering_key <> '') IS TRUE)
FROM failed
WHERE o.id = failed.id AND o.claim_generation = failed.claim_generation
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key
