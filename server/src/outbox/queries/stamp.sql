-- Published: the broker confirmed and routed these. Matches the claim's generation: a re-stage or another claim outdates it.
-- A row that a stranger has locked is left for the next settle (skipped.sql); what never waits needs no order.
-- What is told along: the types of which rows wait because no queue took them; one does now.
-- $3: whether the service's lock is held; without it the front's end is left on the list for the next pass.
WITH confirmed AS MATERIALIZED (
    SELECT o.id, o.claim_generation, o.event_type FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[]) AS c (id, generation) ON c.id = o.id AND c.generation = o.claim_generation
    WHERE num_nonnulls(o.published_at) = 0
    FOR UPDATE OF o SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT t.event_type FROM (SELECT DISTINCT event_type FROM confirmed) AS t
    WHERE EXISTS (SELECT 1 FROM holdfast.event_outbox AS w
                  WHERE w.event_type = t.event_type AND w.unroutable AND w.published_at IS NULL AND w.parked_at IS NULL
                    AND w.next_attempt_at > now())
)
UPDATE holdfast.event_outbox AS o
SET published_at = greatest(now(), o.created_at),
    first_published_at = coalesce(o.first_published_at, greatest(now(), o.created_at)),
    last_published_at = greatest(now(), o.created_at),
    claimed_at = NULL, claimed_by = NULL, next_attempt_at = NULL, last_error = NULL, unroutable = false, lone_claims = 0,
    parked_at = NULL, parked_reason = NULL,
    is_head = (NOT $3 AND (o.ordering_key <> '') IS TRUE)
FROM confirmed LEFT JOIN waiting ON waiting.event_type = confirmed.event_type
WHERE o.id = confirmed.id AND o.claim_generation = confirmed.claim_generation
  AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key, waiting.event_type AS waiting, o.event_type,
          -- How long after its commit was seen. Hand-written SQL may say 'infinity'; one row must not fail a batch.
          CASE WHEN isfinite(o.resolved_at) THEN extract(epoch FROM now() - o.resolved_at)::float8 END AS lag
