-- Parked rows by seq. $1: greater than this, or all. $2, $3: only this type, this key. $4: most rows. Texts are bounded: what
-- hand-written SQL put in can be as long as it likes.
SELECT o.id, o.seq, left(o.event_type, 255) AS event_type, left(o.ordering_key, 1024) AS ordering_key,
       CASE WHEN o.created_at BETWEEN 'epoch' AND '9999-12-31' THEN o.created_at END AS created_at,
       CASE WHEN o.parked_at BETWEEN 'epoch' AND '9999-12-31' THEN o.parked_at END AS parked_at,
       left(coalesce(o.parked_reason, ''), 1024) AS reason, o.attempts, o.lone_claims,
       CASE WHEN o.ordering_key <> '' THEN
           (SELECT count(*) FROM (SELECT FROM holdfast.event_outbox AS b
                                  WHERE b.ordering_key = o.ordering_key AND b.seq > o.seq AND b.ticket IS NULL
                                    AND b.hold_operation_id IS NULL AND b.published_at IS NULL LIMIT 1000) AS behind)
       ELSE 0 END AS behind
FROM holdfast.event_outbox AS o
WHERE o.parked_at IS NOT NULL AND o.published_at IS NULL AND ($1::bigint IS NULL OR o.seq > $1)
  AND ($2::text IS NULL OR o.event_type = $2) AND ($3::text IS NULL OR o.ordering_key = $3)
ORDER BY o.seq LIMIT $4
