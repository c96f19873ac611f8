-- A lease that has run out was one start too many: counted, and the series is over.
UPDATE holdfast.event_inbox AS i
SET lease_token = NULL, lease_until = NULL, ended = 'lapsed', lost_starts = $4::integer, cause = 'lost_starts'
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text AND i.generation = $3::bigint
  AND num_nonnulls(i.processed_at, i.ticket, i.cause) = 0 AND i.lease_until <= now()
RETURNING 1
