-- The minute's sweep: types whose rows all wait at infinity, because the probe vanished (discarded, parked, deleted by hand, or
-- failed otherwise). One row of each is the probe from now on. Walks the types, one index entry each.
WITH RECURSIVE types AS (
    (SELECT event_type FROM holdfast.event_outbox
     WHERE unroutable AND published_at IS NULL AND parked_at IS NULL
     ORDER BY event_type LIMIT 1)
    UNION ALL
    SELECT (SELECT o.event_type FROM holdfast.event_outbox AS o
            WHERE o.event_type > types.event_type AND o.unroutable AND o.published_at IS NULL AND o.parked_at IS NULL
            ORDER BY o.event_type LIMIT 1)
    FROM types WHERE types.event_type IS NOT NULL
), without_probe AS MATERIALIZED (
    SELECT types.event_type FROM types
    WHERE types.event_type IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM holdfast.event_outbox AS p
                      WHERE p.event_type = types.event_type AND p.unroutable AND p.published_at IS NULL
                        AND p.parked_at IS NULL AND p.next_attempt_at < 'infinity')
      -- In flight, or given back and to be tried at once.
      AND NOT EXISTS (SELECT 1 FROM holdfast.event_outbox AS p
                      WHERE p.event_type = types.event_type AND p.unroutable AND p.published_at IS NULL
                        AND p.parked_at IS NULL AND p.next_attempt_at IS NULL
                        AND (num_nonnulls(p.claimed_at) = 1 OR num_nonnulls(p.admitted_at) = 0))
), chosen AS MATERIALIZED (
    SELECT waiting.id FROM without_probe AS t CROSS JOIN LATERAL (
        SELECT o.id FROM holdfast.event_outbox AS o
        WHERE o.event_type = t.event_type AND o.unroutable AND o.published_at IS NULL AND o.parked_at IS NULL
          AND o.next_attempt_at = 'infinity'
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS waiting
)
UPDATE holdfast.event_outbox AS o SET next_attempt_at = now()
FROM chosen
WHERE o.id = chosen.id AND o.unroutable AND o.next_attempt_at = 'infinity'
  AND num_nonnulls(o.published_at, o.parked_at, o.claimed_at) = 0
