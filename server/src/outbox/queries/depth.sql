-- What lies in a service's outbox, measured every few seconds, so it may cost only so much: the states of the oldest $1
-- unpublished rows, which are all of them as long as that is enough; beyond, the planner's estimates of the partial indexes.
-- The states are lookup's, with what pending rows wait for apart. Hand-written SQL may say 'infinity'.
-- Also the tables of the schema with their sizes, and how many keys have rows set aside, one index entry a key, at most $2.
WITH RECURSIVE oldest AS MATERIALIZED (
    SELECT created_at, resolved_at,
           CASE WHEN ticket IS NOT NULL THEN 'unresolved'
                WHEN hold_operation_id IS NOT NULL THEN 'held'
                WHEN parked_at IS NOT NULL THEN 'parked'
                WHEN claimed_at IS NOT NULL THEN 'in_flight'
                WHEN unroutable AND next_attempt_at IS NOT NULL THEN 'unroutable'
                WHEN next_attempt_at IS NOT NULL THEN 'backing_off'
                WHEN admitted_at IS NOT NULL THEN 'aside'
                ELSE 'pending' END AS state
    FROM holdfast.event_outbox WHERE published_at IS NULL ORDER BY created_at LIMIT $1
), aside AS (
    (SELECT ordering_key AS key FROM holdfast.event_outbox
     WHERE ordering_key > '' AND admitted_at IS NOT NULL AND next_attempt_at IS NULL AND parked_at IS NULL
       AND published_at IS NULL
     ORDER BY ordering_key LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ordering_key FROM holdfast.event_outbox AS o
            WHERE o.ordering_key > aside.key AND o.admitted_at IS NOT NULL AND o.next_attempt_at IS NULL
              AND o.parked_at IS NULL AND o.published_at IS NULL
            ORDER BY o.ordering_key LIMIT 1)
    FROM aside WHERE aside.key IS NOT NULL
)
SELECT 'state' AS kind, state AS name, count(*) AS rows,
       coalesce(max(CASE WHEN isfinite(created_at) THEN extract(epoch FROM now() - created_at)::bigint END), 0) AS size,
       count(*) FILTER (WHERE state NOT IN ('unresolved', 'held') AND resolved_at < now() - interval '15 minutes') AS late
FROM oldest GROUP BY state
UNION ALL
SELECT 'keys', '', count(*), 0, 0 FROM (SELECT FROM aside WHERE key IS NOT NULL LIMIT $2) AS keys
UNION ALL
SELECT CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END, c.relname::text, greatest(c.reltuples, 0)::bigint,
       CASE WHEN c.relkind IN ('r', 'p') THEN coalesce(pg_total_relation_size(c.oid), 0) ELSE 0 END, 0
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p', 'i')
