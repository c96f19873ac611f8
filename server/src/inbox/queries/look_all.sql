-- A message's rows of the queues $2 as they are now, as look.sql has one of them. `remaining`: seconds that its lease has left, none or less once it has run out.
SELECT consumer_queue, source_service, event_type, received_at, floor(extract(epoch FROM received_at))::bigint AS epoch, processed_at, ticket,
       lease_token, lease_until, extract(epoch FROM lease_until - now())::float8 AS remaining, generation, begun_at, ended, failures,
       lost_starts, cause, dead_lettered_at, cycle, replay_id, redelivered, last_error, now() AS looked_at
FROM holdfast.event_inbox WHERE envelope_id = $1 AND consumer_queue = ANY ($2::text[])
