-- The verdict "committed", at most $3 rows at once: a transaction with a million events is decided in pieces.
-- $2: leave rows that somebody is busy with (the resolver, which comes again), or wait for them (the pass, which must not
-- overtake them). What never waits needs no order.
WITH skipping AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE $2 AND ticket = ANY ($1::bigint[])
    LIMIT $3 FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE NOT $2 AND ticket = ANY ($1::bigint[])
    ORDER BY id LIMIT $3 FOR UPDATE
)
UPDATE holdfast.event_outbox AS o
SET ticket = NULL, resolved_at = now()
FROM (SELECT * FROM skipping UNION ALL SELECT * FROM waiting) AS decided
WHERE o.id = decided.id AND o.ticket IS NOT DISTINCT FROM decided.ticket
