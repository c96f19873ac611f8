-- Claims whose lease ran out: their rows are fresh again. All rows of a chain were claimed at one instant, so they heal
-- together. A claim of the future (a clock that was stepped back, hand-written SQL) has no lease to wait for. The generation
-- stays: only a new claim outdates the old one's stamp, which is a fact as long as it is true. $1: the lease.
WITH expired AS MATERIALIZED (
    SELECT o.id
    FROM holdfast.outbox_claim AS c CROSS JOIN LATERAL unnest(c.ids) AS entry (id) CROSS JOIN LATERAL (
        SELECT id FROM holdfast.event_outbox
        WHERE id = entry.id AND claimed_at IS NOT DISTINCT FROM c.claimed_at AND num_nonnulls(published_at) = 0
        FOR UPDATE SKIP LOCKED) AS o
    WHERE c.claimed_at < now() - $1::float8 * interval '1 second'
       OR c.claimed_at > now() + $1::float8 * interval '1 second'
)
UPDATE holdfast.event_outbox AS o
SET claimed_at = NULL, claimed_by = NULL, admitted_at = NULL, is_head = false
-- Not a join: nothing tells the planner how few these are, and it would read the whole table.
WHERE o.id = ANY (ARRAY(SELECT id FROM expired))
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.ordering_key
