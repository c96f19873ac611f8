-- The verdict "committed", at most $2 rows at once: a transaction with a million events is decided in pieces. Rows that
-- somebody else is busy with are skipped: the resolver comes again, and a pass lets nothing of their key overtake them
-- meanwhile (claim.sql, $5). What never waits needs no order.
WITH decided AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE ticket = ANY ($1::bigint[])
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET ticket = NULL, resolved_at = now()
FROM decided
WHERE o.id = decided.id AND o.ticket IS NOT DISTINCT FROM decided.ticket
