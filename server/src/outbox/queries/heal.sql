-- Claims whose lease ran out: their rows are fresh again. All rows of a chain were claimed at one instant, so they heal
-- together. A claim of the future (a clock that was stepped back, hand-written SQL) has no lease to wait for. The generation stays: only a new claim outdates the old one's stamp, which is a fact as long as it is true.
WITH expired AS MATERIALIZED (
    SELECT id, claim_generation FROM holdfast.event_outbox
    WHERE (claimed_at < now() - $1::float8 * interval '1 second' OR claimed_at > now() + $1::float8 * interval '1 second')
      AND num_nonnulls(published_at) = 0
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET claimed_at = NULL, claimed_by = NULL, admitted_at = NULL, is_head = false
FROM expired
WHERE o.id = expired.id AND o.claim_generation = expired.claim_generation
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.ordering_key
