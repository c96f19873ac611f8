-- The verdict "committed": the messages are processed, at most $2 at once; those that somebody else is busy with, next time. What
-- never waits needs no order. Tells how long each took, as far as is known.
WITH decided AS MATERIALIZED (
    SELECT envelope_id, consumer_queue, ticket FROM holdfast.event_inbox
    WHERE ticket = ANY ($1::bigint[])
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_inbox AS i
SET processed_at = now(), ticket = NULL, ended = NULL
FROM decided
WHERE i.envelope_id = decided.envelope_id AND i.consumer_queue = decided.consumer_queue
  AND i.ticket IS NOT DISTINCT FROM decided.ticket AND i.processed_at IS NULL
RETURNING coalesce(extract(epoch FROM now() - i.begun_at), 0)::float8 AS took
