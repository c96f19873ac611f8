-- A queue takes these types: rows of theirs that wait because none did are due at once, at most $2 a type. Each of their
-- successes releases more, so that a hundred thousand go out without a hundred thousand being due at the same time.
WITH ready AS MATERIALIZED (
    SELECT waiting.id FROM unnest($1::text[]) AS t (event_type) CROSS JOIN LATERAL (
        SELECT o.id FROM holdfast.event_outbox AS o
        WHERE o.event_type = t.event_type AND o.unroutable AND o.published_at IS NULL AND o.parked_at IS NULL
          AND o.next_attempt_at > now()
        ORDER BY o.next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ) AS waiting
)
UPDATE holdfast.event_outbox AS o SET next_attempt_at = now()
FROM ready
WHERE o.id = ready.id AND o.unroutable AND o.next_attempt_at > now()
  AND num_nonnulls(o.published_at, o.parked_at, o.claimed_at) = 0
