-- Rows of rolled-back tickets that make way for a new stage of the same id, counted as discarded.
WITH old AS MATERIALIZED (
    SELECT o.id, o.ticket FROM holdfast.event_outbox AS o
    JOIN unnest($1::uuid[], $2::bigint[]) AS dead (id, ticket) ON o.id = dead.id AND o.ticket IS NOT DISTINCT FROM dead.ticket
    ORDER BY o.id FOR UPDATE OF o
), gone AS (
    DELETE FROM holdfast.event_outbox AS o USING old WHERE o.id = old.id AND o.ticket IS NOT DISTINCT FROM old.ticket
    RETURNING o.id
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'rolled_back', $3, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT count(*) FROM gone
