-- The first delivery of a message: begun, if nobody has. $5: the ticket; whose lock is free is not open, and binds nothing. $7: the
-- lease in seconds.
INSERT INTO holdfast.event_inbox AS i
    (envelope_id, consumer_queue, source_service, event_type, ticket, lease_token, lease_until, generation, begun_at,
     redelivered, replay_id, cycle)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::uuid, now() + $7::float8 * interval '1 second', 1, now(),
       $8::boolean, $9::uuid, $10::integer
WHERE $5::bigint IS NULL OR NOT pg_try_advisory_xact_lock_shared($5::bigint)
ON CONFLICT (envelope_id, consumer_queue) DO NOTHING
RETURNING i.lease_until
