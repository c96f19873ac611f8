-- In the handler's own transaction, before anything else: processed, if it commits. Until then the row is locked, which is what keeps
-- others away.
UPDATE holdfast.event_inbox AS i
SET processed_at = now(), lease_token = NULL, lease_until = NULL, ended = NULL
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text AND i.generation = $3::bigint AND i.lease_token = $4::uuid
  AND num_nonnulls(i.processed_at, i.ticket, i.cause) = 0
RETURNING 1
