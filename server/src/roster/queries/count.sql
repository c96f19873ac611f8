-- So much of each is undelivered.
INSERT INTO holdfast.known_service (name, undelivered, counted_at)
SELECT name, undelivered, now() FROM unnest($1::text[], $2::bigint[]) AS counted (name, undelivered) ORDER BY name
ON CONFLICT (name) DO UPDATE SET last_seen = now(), undelivered = excluded.undelivered, counted_at = excluded.counted_at
