-- Another start of a message whose row was looked at and is locked since ($3: its generation). $10: a new series begins, whose token
-- differs from the last one's.
UPDATE holdfast.event_inbox AS i
SET lease_token = $4::uuid, lease_until = now() + $5::float8 * interval '1 second', generation = i.generation + 1, begun_at = now(),
    ended = NULL, failures = $6::integer, lost_starts = $7::integer, cause = NULL, dead_lettered_at = NULL,
    received_at = CASE WHEN $10::boolean THEN greatest(now(), i.received_at + interval '1 second') ELSE i.received_at END,
    cycle = $8::integer, replay_id = $9::uuid, redelivered = $11::boolean
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text AND i.generation = $3::bigint
  AND num_nonnulls(i.processed_at, i.ticket) = 0
RETURNING 1
