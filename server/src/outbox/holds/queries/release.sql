-- The next $3 rows of a released pair by seq lose their hold: those of committed transactions are fresh, those of open ones wait for
-- their verdict like any other. By seq, so that of one key no later row goes first; locked by id, as by everybody; a row that
-- somebody else has locked is waited for, since the rows behind it must not overtake it. Fewer than $3 `found`: none are left.
WITH slice AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE hold_operation_id = $1 AND hold_generation = $2 AND published_at IS NULL
    ORDER BY seq LIMIT $3
), locked AS MATERIALIZED (
    SELECT o.id FROM holdfast.event_outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT id FROM slice)) AND o.hold_operation_id IS NOT DISTINCT FROM $1
      AND o.hold_generation IS NOT DISTINCT FROM $2 AND num_nonnulls(o.published_at) = 0
    ORDER BY o.id FOR UPDATE
), released AS (
    UPDATE holdfast.event_outbox AS o
    SET hold_operation_id = NULL, hold_generation = NULL,
        -- Set aside before it was held (by hand-written SQL): nobody would give it back.
        admitted_at = CASE WHEN num_nonnulls(o.next_attempt_at, o.parked_at) > 0 THEN o.admitted_at END
    WHERE o.id = ANY (ARRAY(SELECT id FROM locked)) AND o.hold_operation_id IS NOT DISTINCT FROM $1
      AND o.hold_generation IS NOT DISTINCT FROM $2 AND num_nonnulls(o.published_at) = 0
    RETURNING 1
)
SELECT (SELECT count(*) FROM slice) AS found, (SELECT count(*) FROM released) AS acted
