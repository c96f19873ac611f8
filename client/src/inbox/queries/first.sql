-- The first delivery of a message: begun in process, with a lease that lasts until the handler's own transaction has the row locked.
INSERT INTO holdfast.event_inbox AS i
    (envelope_id, consumer_queue, source_service, event_type, lease_token, lease_until, generation, begun_at, redelivered,
     replay_id, cycle)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::uuid, now() + $6::float8 * interval '1 second', 1, now(), $7::boolean,
        $8::uuid, $9::integer)
ON CONFLICT (envelope_id, consumer_queue) DO NOTHING
RETURNING 1
