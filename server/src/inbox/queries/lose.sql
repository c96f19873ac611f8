-- The verdict "rolled back": starts that ended in nothing, counted, at most $2 at once; those that somebody else is busy with, next
-- time. $3: with so many the series is over.
WITH decided AS MATERIALIZED (
    SELECT envelope_id, consumer_queue, ticket FROM holdfast.event_inbox
    WHERE ticket = ANY ($1::bigint[])
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_inbox AS i
SET ticket = NULL, ended = 'rolled_back', lost_starts = i.lost_starts + 1,
    cause = CASE WHEN i.lost_starts + 1 >= $3 THEN 'lost_starts' END
FROM decided
WHERE i.envelope_id = decided.envelope_id AND i.consumer_queue = decided.consumer_queue
  AND i.ticket IS NOT DISTINCT FROM decided.ticket AND i.processed_at IS NULL
