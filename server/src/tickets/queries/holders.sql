-- Who has these tickets' locks: a backend, or a prepared transaction, whose locks have no process; which one it is tells the lock
-- on its own number. What a role may not see of another role's backend is NULL. Never the query: it may hold a payload.
WITH asked AS (
    SELECT DISTINCT ticket, (ticket >> 32) & 4294967295 AS high, ticket & 4294967295 AS low FROM unnest($1::bigint[]) AS ticket
), locks AS MATERIALIZED (
    SELECT locktype, database, classid::bigint AS high, objid::bigint AS low, objsubid, transactionid, pid, virtualtransaction
    FROM pg_locks
    WHERE locktype IN ('advisory', 'transactionid') AND granted AND mode = 'ExclusiveLock'
), held AS (
    SELECT high, low, pid, virtualtransaction FROM locks
    WHERE locktype = 'advisory' AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), prepared AS (
    SELECT locks.virtualtransaction, p.gid, p.owner, p.prepared
    FROM locks JOIN pg_prepared_xacts AS p ON p.transaction = locks.transactionid
    WHERE locks.locktype = 'transactionid' AND locks.pid IS NULL AND p.database = current_database()
)
SELECT DISTINCT ON (asked.ticket) asked.ticket, coalesce(held.pid, 0) AS pid,
       left(coalesce(a.application_name, ''), 255) AS application_name,
       coalesce(a.usename::text, p.owner::text, '') AS login,
       CASE WHEN a.client_addr IS NOT NULL THEN host(a.client_addr) WHEN a.backend_start IS NOT NULL THEN 'local' ELSE '' END
           AS client_address,
       coalesce(a.state, '') AS state, a.xact_start, a.query_start, coalesce(p.gid, '') AS gid, p.prepared
FROM asked JOIN held ON held.high = asked.high AND held.low = asked.low
LEFT JOIN pg_stat_activity AS a ON a.pid = held.pid
LEFT JOIN prepared AS p ON held.pid IS NULL AND p.virtualtransaction = held.virtualtransaction
ORDER BY asked.ticket
