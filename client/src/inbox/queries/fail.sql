-- The start failed ($5: how it ended, $6: it is counted, $7: it is the last). $8: so many errors end the series.
UPDATE holdfast.event_inbox AS i
SET lease_token = NULL, lease_until = NULL, ended = $5::text, failures = i.failures + $6::integer,
    cause = CASE WHEN $7::boolean THEN 'asked' WHEN $6::integer > 0 AND i.failures + $6::integer >= $8::integer THEN 'failures' END,
    last_error = coalesce(nullif($9::text, ''), i.last_error)
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text AND i.generation = $3::bigint AND i.lease_token = $4::uuid
  AND num_nonnulls(i.processed_at, i.ticket, i.cause) = 0
RETURNING i.failures, i.cause, floor(extract(epoch FROM i.received_at))::bigint AS epoch
