-- Rows that a verb left alone, and what they are; one that waits all the same is locked by somebody else. $2, $3: whether
-- unroutable and parked rows hold their keys back.
SELECT o.id, before.id AS behind,
       CASE WHEN o.published_at IS NOT NULL THEN 'published'
            WHEN o.ticket IS NOT NULL THEN 'unresolved'
            WHEN o.hold_operation_id IS NOT NULL THEN 'held'
            WHEN o.parked_at IS NOT NULL THEN 'parked'
            WHEN o.claimed_at IS NOT NULL THEN 'in_flight'
            WHEN o.next_attempt_at > now() THEN 'busy'
            WHEN before.id IS NOT NULL OR (o.admitted_at IS NOT NULL AND o.next_attempt_at IS NULL) THEN 'behind'
            ELSE 'ready' END AS why
FROM holdfast.event_outbox AS o LEFT JOIN LATERAL (
    SELECT early.id FROM (
        SELECT b.id, ($2 OR NOT (b.unroutable AND b.next_attempt_at IS NOT NULL)) AND ($3 OR b.parked_at IS NULL) AS blocks
        FROM holdfast.event_outbox AS b
        WHERE b.ordering_key = o.ordering_key AND b.seq < o.seq AND b.ticket IS NULL AND b.hold_operation_id IS NULL
          AND b.published_at IS NULL
          AND o.ordering_key <> '' AND num_nonnulls(o.ticket, o.hold_operation_id, o.parked_at, o.claimed_at, o.published_at) = 0
        ORDER BY b.seq LIMIT 100) AS early
    WHERE early.blocks LIMIT 1
) AS before ON true
WHERE o.id = ANY ($1::uuid[])
