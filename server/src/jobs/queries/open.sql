-- How many jobs there are by state, as far as they are not over: for who watches.
SELECT count(*) FILTER (WHERE state IN ('preparing', 'running')) AS running, count(*) FILTER (WHERE state = 'paused') AS paused,
       extract(epoch FROM min(next_at) FILTER (WHERE state <> 'paused') - now())::float8 AS due
FROM holdfast.job WHERE NOT cleared AND state <> 'planned'
