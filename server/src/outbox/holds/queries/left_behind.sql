-- Decided pairs that have rows all the same: their release or drop did not come to its end, or somebody put in rows past the
-- lock. A page of the walk over the pairs' index behind ($1, $2), at most $3 pairs; the page's last one is in it, decided or
-- not. $4: a decision of the last so many seconds is still being carried out.
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
    WHERE walk.n < $3
)
SELECT walk.operation_id, walk.generation, h.outcome, walk.n = $3 AS last
FROM walk LEFT JOIN holdfast.hold_outcome AS h
     ON h.operation_id = walk.operation_id AND h.generation = walk.generation
        AND h.decided_at < now() - $4::float8 * interval '1 second'
WHERE h.outcome IS NOT NULL OR walk.n = $3
ORDER BY walk.operation_id, walk.generation
