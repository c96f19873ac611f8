-- A message's row as it is now, locked; none: somebody works on it. `remaining`: seconds that its lease has left, none or less once it
-- has run out.
SELECT processed_at IS NOT NULL AS processed, ticket IS NOT NULL AS ticketed,
       extract(epoch FROM lease_until - now())::float8 AS remaining, floor(extract(epoch FROM received_at))::bigint AS epoch,
       generation, failures, lost_starts, cause, dead_lettered_at IS NOT NULL AS surfaced, cycle, replay_id
FROM holdfast.event_inbox WHERE envelope_id = $1::uuid AND consumer_queue = $2::text
FOR UPDATE SKIP LOCKED
