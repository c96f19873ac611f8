-- The letter is on its way to a queue: marked, if its series is still the one ($3: the token's seconds) and still over.
UPDATE holdfast.event_inbox AS i SET dead_lettered_at = now()
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text AND floor(extract(epoch FROM i.received_at))::bigint = $3::bigint
  AND i.cause IS NOT NULL AND num_nonnulls(i.dead_lettered_at, i.processed_at, i.ticket, i.lease_until) = 0
RETURNING i.dead_lettered_at
