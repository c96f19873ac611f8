-- Pairs with rows that wait, by operation and generation, at most $4: a walk over the pairs' index, one step a pair.
-- $1, $2: behind this pair. $3: only this operation.
WITH RECURSIVE walk AS (
    (SELECT hold_operation_id AS operation_id, hold_generation AS generation, 1 AS n FROM holdfast.event_outbox
     WHERE hold_operation_id IS NOT NULL AND published_at IS NULL
       AND (hold_operation_id, hold_generation) > ($1::text, $2::bigint)
     ORDER BY hold_operation_id, hold_generation LIMIT 1)
    UNION ALL
    SELECT next.operation_id, next.generation, walk.n + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT o.hold_operation_id AS operation_id, o.hold_generation AS generation FROM holdfast.event_outbox AS o
        WHERE o.hold_operation_id IS NOT NULL AND o.published_at IS NULL
          AND (o.hold_operation_id, o.hold_generation) > (walk.operation_id, walk.generation)
        ORDER BY o.hold_operation_id, o.hold_generation LIMIT 1) AS next
    WHERE walk.n < $4 AND ($3::text IS NULL OR walk.operation_id = $3)
)
SELECT walk.operation_id, walk.generation, rows.held, rows.unresolved,
       CASE WHEN rows.oldest BETWEEN 'epoch' AND '9999-12-31' THEN rows.oldest END AS oldest, h.outcome
FROM walk CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE o.ticket IS NULL) AS held, count(*) FILTER (WHERE o.ticket IS NOT NULL) AS unresolved,
           min(o.created_at) AS oldest
    FROM holdfast.event_outbox AS o
    WHERE o.hold_operation_id = walk.operation_id AND o.hold_generation = walk.generation AND o.published_at IS NULL
) AS rows
LEFT JOIN holdfast.hold_outcome AS h ON h.operation_id = walk.operation_id AND h.generation = walk.generation
WHERE $3::text IS NULL OR walk.operation_id = $3
ORDER BY walk.operation_id, walk.generation
