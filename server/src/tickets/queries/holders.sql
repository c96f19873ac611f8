-- Who has these tickets' locks: a backend, or a prepared transaction (its locks have no process, and its number stands in place
-- of a virtual one). What a role may not see of another role's backend is NULL. Never the query: it may hold a payload.
WITH asked AS (
    SELECT DISTINCT ticket, (ticket >> 32) & 4294967295 AS high, ticket & 4294967295 AS low FROM unnest($1::bigint[]) AS ticket
), held AS MATERIALIZED (
    SELECT classid::bigint AS high, objid::bigint AS low, pid, virtualtransaction
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND mode = 'ExclusiveLock'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT DISTINCT ON (asked.ticket) asked.ticket, coalesce(held.pid, 0) AS pid,
       left(coalesce(a.application_name, ''), 255) AS application_name,
       coalesce(a.usename::text, p.owner::text, '') AS login,
       CASE WHEN a.client_addr IS NOT NULL THEN host(a.client_addr) WHEN a.backend_start IS NOT NULL THEN 'local' ELSE '' END
           AS client_address,
       coalesce(a.state, '') AS state, a.xact_start, a.query_start, coalesce(p.gid, '') AS gid, p.prepared
FROM asked JOIN held ON held.high = asked.high AND held.low = asked.low
LEFT JOIN pg_stat_activity AS a ON a.pid = held.pid
LEFT JOIN pg_prepared_xacts AS p ON held.pid IS NULL AND held.virtualtransaction = '-1/' || p.transaction::text
    AND p.database = current_database()
ORDER BY asked.ticket
