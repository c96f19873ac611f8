-- The verdict "committed". Rows that somebody else is busy with are skipped: the resolver comes again, and a pass lets nothing
-- of their key overtake them meanwhile (claim.sql, $5).
WITH decided AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE ticket = ANY ($1::bigint[])
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET ticket = NULL, resolved_at = now()
FROM decided
WHERE o.id = decided.id AND o.ticket = decided.ticket
