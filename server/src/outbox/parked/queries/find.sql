-- The next parked rows by seq, and which of them are wanted: at most $4 are looked at, whatever is asked for. $1: greater than
-- this seq, or all. $2, $3: only this type, this key.
SELECT o.id, o.seq,
       coalesce(($2::text IS NULL OR o.event_type = $2) AND ($3::text IS NULL OR o.ordering_key = $3), false) AS wanted
FROM holdfast.event_outbox AS o
WHERE o.parked_at IS NOT NULL AND o.published_at IS NULL AND ($1::bigint IS NULL OR o.seq > $1)
ORDER BY o.seq LIMIT $4
