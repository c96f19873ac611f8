-- The verdict "rolled back": the rows go, counted in the same transaction, at most $2 at once; those that somebody else is
-- busy with, next time. What never waits needs no order. $3: the tally's slot.
WITH decided AS MATERIALIZED (
    SELECT id, ticket FROM holdfast.event_outbox
    WHERE ticket = ANY ($1::bigint[])
    LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.event_outbox AS o
    USING decided
    WHERE o.id = decided.id AND o.ticket IS NOT DISTINCT FROM decided.ticket
    RETURNING o.id
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'rolled_back', $3, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT count(*) FROM gone
