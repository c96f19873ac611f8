-- Writes down that this pair is warned of now, unless it was within the last $3 seconds, a time that is yet to come
-- not counted. Under the watch's lock.
INSERT INTO holdfast.hold_watch AS w (operation_id, generation) VALUES ($1, $2)
ON CONFLICT (one) DO UPDATE SET operation_id = excluded.operation_id, generation = excluded.generation, warned_at = now()
WHERE (w.operation_id, w.generation) <> (excluded.operation_id, excluded.generation)
   OR w.warned_at NOT BETWEEN now() - $3::float8 * interval '1 second' AND now()
RETURNING true
