-- Claims whose lease ran out: their rows are fresh again. All rows of a chain were claimed at one instant, so they heal
-- together. A claim of the future (a clock that was stepped back, hand-written SQL) has no lease to wait for. The generation
-- stays: only a new claim outdates the old one's stamp, which is a fact as long as it is true. $1: the lease.
-- A claim that ended without an outcome may have killed its publisher. A row with two such claims or more is claimed alone
-- (lone.sql), after a random wait that grows, so that what crashed together does not come back together; one with seven, five
-- of them alone, is parked. What is returned is to be promoted and, if parked, told.
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
SET claimed_at = NULL, claimed_by = NULL, is_head = false,
    lone_claims = least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer,
    admitted_at = CASE WHEN least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer >= 2 THEN now() END,
    next_attempt_at = CASE WHEN least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer BETWEEN 2 AND 6
        THEN now() + random() * least(2 ^ least(o.lone_claims, 10), 30) * interval '1 second' END,
    parked_at = CASE WHEN least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer >= 7 THEN coalesce(o.parked_at, now()) ELSE o.parked_at END,
    parked_reason = CASE WHEN least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer >= 7 THEN concat(
        least(o.lone_claims, 1000000) + (o.claimed_at < now() - $1::float8 * interval '1 second')::integer,
        ' claims in a row ended without an outcome, the last 5 with nothing else in flight; the last one by ',
        left(o.claimed_by, 100), ' at ', to_char(o.claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ' UTC')
        ELSE o.parked_reason END
-- Not a join: nothing tells the planner how few these are, and it would read the whole table.
WHERE o.id = ANY (ARRAY(SELECT id FROM expired))
  AND num_nonnulls(o.claimed_at) = 1 AND num_nonnulls(o.published_at) = 0
RETURNING o.id, o.ordering_key AS key, o.parked_at IS NOT NULL AS parked, coalesce(o.parked_reason, '') AS reason,
          CASE WHEN o.parked_at IS NOT NULL AND o.ordering_key <> '' THEN
              (SELECT count(*) FROM (SELECT FROM holdfast.event_outbox AS b
                                     WHERE b.ordering_key = o.ordering_key AND b.seq > o.seq AND b.ticket IS NULL
                                       AND b.hold_operation_id IS NULL AND b.published_at IS NULL LIMIT 1000) AS behind)
          ELSE 0 END AS behind
