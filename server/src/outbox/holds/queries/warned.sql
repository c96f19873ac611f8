-- Writes down that this pair is warned of now, unless it was within the last $3 seconds, a time that is yet to come
-- not counted. Under the watch's lock, and by the clock: by now(), the beginning of the transaction, a look that began before another
-- one's warning and got the lock after it would see that in the future, and warn once more.
INSERT INTO holdfast.hold_watch AS w (operation_id, generation, warned_at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (one) DO UPDATE SET operation_id = excluded.operation_id, generation = excluded.generation, warned_at = clock_timestamp()
WHERE (w.operation_id, w.generation) <> (excluded.operation_id, excluded.generation)
   OR w.warned_at NOT BETWEEN clock_timestamp() - $3::float8 * interval '1 second' AND clock_timestamp()
RETURNING true
