-- The verdict "committed". $2: leave rows that somebody is busy with (the resolver, which comes again), or wait for them
-- (the pass, which must not overtake them).
WITH skipping AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE $2 AND ticket = ANY ($1::bigint[])
    ORDER BY id FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE NOT $2 AND ticket = ANY ($1::bigint[])
    ORDER BY id FOR UPDATE
)
UPDATE holdfast.event_outbox AS o
SET ticket = NULL, resolved_at = now()
FROM (SELECT * FROM skipping UNION ALL SELECT * FROM waiting) AS decided
WHERE o.id = decided.id AND o.ticket = decided.ticket
