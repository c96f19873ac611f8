-- A slice of whichever job is due: its lease, its generation, and what it may do, which is booked on the job's rate. $1: who. $2: the
-- lease in seconds. $3: most rows. A slice is at most a tenth of a second's
-- worth: a burst is what others feel.
WITH due AS MATERIALIZED (
    SELECT id FROM holdfast.job
    WHERE NOT cleared AND state <> 'planned' AND state <> 'paused' AND kind = $4::text
      AND next_at <= now() AND (leased_until <= now()) IS NOT FALSE
    ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED
), sized AS MATERIALIZED (
    SELECT j.id, least($3::integer, greatest(j.max_rate / 10, 1), coalesce(j.ramp, $3::integer)) AS rows
    FROM holdfast.job AS j JOIN due ON due.id = j.id
)
UPDATE holdfast.job AS j
SET generation = j.generation + 1, leased_by = $1::text, leased_until = now() + $2::float8 * interval '1 second', booked = sized.rows,
    -- What was not used while nobody had time is not made up for.
    next_at = CASE WHEN j.state = 'running' THEN now() + sized.rows * interval '1 second' / j.max_rate ELSE now() END
FROM sized
WHERE j.id = sized.id AND NOT j.cleared AND j.state <> 'planned' AND j.state <> 'paused' AND j.next_at <= now()
  AND (j.leased_until <= now()) IS NOT FALSE
RETURNING j.id, j.state, j.generation, j.booked, j.matched
