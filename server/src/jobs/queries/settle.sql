-- A slice's books, if it is still the one ($2: its generation). $3 to $6: done, failed, expired, gone. $7: what comes next: the job's
-- next state where nobody has changed it meanwhile. $8: nothing is left to be cleared away. $9: seconds until there is any use in
-- another one. A job of which more than its share has failed pauses itself (without a ramp once there were twenty); one that goes well
-- grows its ramp.
UPDATE holdfast.job AS j
SET done = j.done + $3::bigint, failed = j.failed + $4::bigint, expired = j.expired + $5::bigint, pruned = j.pruned + $6::bigint,
    leased_by = NULL, leased_until = NULL, booked = 0, cleared = j.cleared OR $8::boolean,
    next_at = greatest(j.next_at, now() + $9::float8 * interval '1 second'),
    state = CASE WHEN j.state NOT IN ('preparing', 'running') THEN j.state
                 WHEN $7::text = 'done' THEN 'done'
                 WHEN ($4::bigint > 0 AND (j.ramp IS NOT NULL OR j.done + j.failed + $3::bigint + $4::bigint >= 20)
                       AND j.failed + $4::bigint > j.max_failures * (j.done + j.failed + $3::bigint + $4::bigint)) THEN 'paused'
                 WHEN j.state = 'preparing' AND $7::text = 'running' THEN 'running' ELSE j.state END,
    ended_at = CASE WHEN j.state IN ('preparing', 'running') AND $7::text = 'done' THEN now() ELSE j.ended_at END,
    reason = CASE WHEN j.state IN ('preparing', 'running') AND $7::text IS DISTINCT FROM 'done'
                       AND ($4::bigint > 0 AND (j.ramp IS NOT NULL OR j.done + j.failed + $3::bigint + $4::bigint >= 20)
                       AND j.failed + $4::bigint > j.max_failures * (j.done + j.failed + $3::bigint + $4::bigint))
                  THEN 'it paused itself: ' || (j.failed + $4::bigint) || ' of ' || (j.done + j.failed + $3::bigint + $4::bigint)
                       || ' failed, which is more than its limit allows' ELSE j.reason END,
    ramp = CASE WHEN j.ramp IS NOT NULL AND $4::bigint = 0 AND $3::bigint > 0 THEN least(j.ramp * 10, 1000) ELSE j.ramp END
WHERE j.id = $1::uuid AND j.generation = $2::bigint AND j.leased_until IS NOT NULL
RETURNING j.state
