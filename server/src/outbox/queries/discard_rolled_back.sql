-- The verdict "rolled back": the rows go, counted in the same transaction, at most $3 at once. $4: the tally's slot.
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
), gone AS (
    DELETE FROM holdfast.event_outbox AS o
    USING (SELECT * FROM skipping UNION ALL SELECT * FROM waiting) AS decided
    WHERE o.id = decided.id AND o.ticket IS NOT DISTINCT FROM decided.ticket
    RETURNING o.id
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'rolled_back', $4, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT count(*) FROM gone
