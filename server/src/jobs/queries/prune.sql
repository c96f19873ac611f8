-- Jobs that ended longer ago than they are remembered, and plans that nobody ran; at most $2. $1: the retention in seconds. Never one
-- that has something to be cleared away: that is done in slices before.
WITH old AS MATERIALIZED (
    SELECT id FROM holdfast.job
    WHERE (cleared AND ended_at < now() - $1::float8 * interval '1 second')
       OR (state = 'planned' AND expires_at < now() - interval '1 day')
    LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.job AS j USING old
    WHERE j.id = old.id AND ((j.cleared AND j.ended_at < now() - $1::float8 * interval '1 second')
                             OR (j.state = 'planned' AND j.expires_at < now() - interval '1 day'))
    RETURNING 1
)
SELECT count(*) FROM gone
