-- No broker could carry these: set aside with the reason until an operator acts. Locked rows are left as by
-- stamp.sql. $4 as its $3. What is returned is
-- to be told, with the number of rows of its key behind it, at most 1,000.
-- $5: who claimed: after a fail-over that lost a claim, another one's may bear the same generation.
WITH unsendable AS MATERIALIZED (
    SELECT o.id, o.claim_generation, u.reason FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[], $3::text[]) AS u (id, generation, reason)
         ON u.id = o.id AND u.generation = o.claim_generation
    WHERE o.claimed_by = $5 AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET attempts = least(o.attempts, 2147483646) + 1, last_error = u.reason, parked_at = now(), parked_reason = u.reason,
    unroutable = false, admitted_at = now(), claimed_at = NULL, claimed_by = NULL, next_attempt_at = NULL,
    is_head = (NOT $4 AND (o.ordering_key <> '') IS TRUE)
FROM unsendable AS u
WHERE o.id = u.id AND o.claim_generation = u.claim_generation
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key, true AS parked, u.reason,
          CASE WHEN o.ordering_key <> '' THEN
              (SELECT count(*) FROM (SELECT FROM holdfast.event_outbox AS b
                                     WHERE b.ordering_key = o.ordering_key AND b.seq > o.seq AND b.ticket IS NULL
                                       AND b.hold_operation_id IS NULL AND b.published_at IS NULL LIMIT 1000) AS behind)
          ELSE 0 END AS behind
