-- The first events of the set, as count.sql has it, by when they were staged; at most $7.
SELECT id FROM holdfast.event_outbox
WHERE published_at IS NOT NULL AND created_at >= $1::timestamptz AND created_at < $2::timestamptz
  AND ($3::text IS NULL OR event_type = $3::text) AND ($4::text IS NULL OR ordering_key = $4::text)
  AND coalesce(first_published_at, published_at) < $5::timestamptz AND seq <= $6::bigint
ORDER BY created_at, seq LIMIT $7
