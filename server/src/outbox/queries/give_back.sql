-- Claimed and not sent, or sent into a connection that went: fresh again, no attempt counted. Locked rows are
-- left as by stamp.sql. $3 as its $3. One that was claimed alone is due again, and alone again.
-- $4: who claimed: after a fail-over that lost a claim, another one's may bear the same generation.
WITH given AS MATERIALIZED (
    SELECT o.id, o.claim_generation FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[]) AS g (id, generation) ON g.id = o.id AND g.generation = o.claim_generation
    WHERE o.claimed_by = $4 AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET claimed_at = NULL, claimed_by = NULL, admitted_at = CASE WHEN o.lone_claims >= 2 THEN now() END,
    next_attempt_at = CASE WHEN o.lone_claims >= 2 THEN now() END,
    is_head = (NOT $3 AND (o.ordering_key <> '') IS TRUE)
FROM given
WHERE o.id = given.id AND o.claim_generation = given.claim_generation
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key
