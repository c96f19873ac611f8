-- Refused, returned or timed out: the claim ends at once, and the row waits until its next attempt. Locked rows are
-- left as by stamp.sql. $6 as its $3.
-- Of the rows of a type that no queue takes only one has a time, the type's probe; the others wait at infinity until a success
-- of their type (release.sql). A probe that was in flight meanwhile stays the probe, with the back-off that it has reached.
-- $7: who claimed: after a fail-over that lost a claim, another one's may bear the same generation.
WITH failed AS MATERIALIZED (
    SELECT o.id, o.claim_generation, o.event_type, o.attempts, o.seq, f.error, f.delay, f.unroutable
    FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[], $3::text[], $4::float8[], $5::boolean[])
         AS f (id, generation, error, delay, unroutable) ON f.id = o.id AND f.generation = o.claim_generation
    WHERE o.claimed_by = $7 AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
    FOR UPDATE OF o SKIP LOCKED
), without_probe AS MATERIALIZED (
    SELECT t.event_type FROM (SELECT DISTINCT event_type FROM failed WHERE unroutable) AS t
    WHERE NOT EXISTS (SELECT 1 FROM holdfast.event_outbox AS p
                      WHERE p.event_type = t.event_type AND p.unroutable AND p.published_at IS NULL AND p.parked_at IS NULL
                        AND p.next_attempt_at < 'infinity' AND p.id <> ALL ($1::uuid[]))
      AND NOT EXISTS (SELECT 1 FROM holdfast.event_outbox AS p
                      WHERE p.event_type = t.event_type AND p.unroutable AND p.published_at IS NULL AND p.parked_at IS NULL
                        AND p.next_attempt_at IS NULL AND num_nonnulls(p.claimed_at) = 1 AND p.id <> ALL ($1::uuid[]))
), probe AS MATERIALIZED (
    SELECT DISTINCT ON (f.event_type) f.id
    FROM failed AS f JOIN without_probe AS t ON t.event_type = f.event_type
    WHERE f.unroutable
    ORDER BY f.event_type, f.attempts DESC, f.seq
)
UPDATE holdfast.event_outbox AS o
SET attempts = least(o.attempts, 2147483646) + 1, last_error = failed.error, unroutable = failed.unroutable,
    next_attempt_at = CASE WHEN failed.unroutable AND failed.id NOT IN (SELECT id FROM probe) THEN 'infinity'
                           ELSE now() + failed.delay * interval '1 second' END,
    claimed_at = NULL, claimed_by = NULL, admitted_at = now(), lone_claims = 0,
    is_head = (NOT $6 AND (o.ordering_key <> '') IS TRUE)
FROM failed
WHERE o.id = failed.id AND o.claim_generation = failed.claim_generation
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key
