-- The next $3 rows of a dropped pair go, whether their transactions are open or not, counted in the same transaction. As
-- release.sql otherwise. $4: the tally's slot.
WITH slice AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE hold_operation_id = $1 AND hold_generation = $2 AND published_at IS NULL
    ORDER BY seq LIMIT $3
), locked AS MATERIALIZED (
    SELECT o.id FROM holdfast.event_outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT id FROM slice)) AND o.hold_operation_id IS NOT DISTINCT FROM $1
      AND o.hold_generation IS NOT DISTINCT FROM $2 AND num_nonnulls(o.published_at) = 0
    ORDER BY o.id FOR UPDATE
), gone AS (
    DELETE FROM holdfast.event_outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT id FROM locked)) AND o.hold_operation_id IS NOT DISTINCT FROM $1
      AND o.hold_generation IS NOT DISTINCT FROM $2 AND num_nonnulls(o.published_at) = 0
    RETURNING o.id
), counted AS (
    INSERT INTO holdfast.outbox_tally AS t (reason, slot, rows)
    SELECT 'dropped', $4, count(*) FROM gone HAVING count(*) > 0
    ON CONFLICT (reason, slot) DO UPDATE SET rows = t.rows + excluded.rows
    RETURNING 1
)
SELECT (SELECT count(*) FROM slice) AS found, (SELECT count(*) FROM gone) AS acted
