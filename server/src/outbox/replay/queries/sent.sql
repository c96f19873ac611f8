-- These events were sent again. Changes no index: the row stays on its page. One that somebody has locked is left as it is: what is
-- written here is for people.
WITH mine AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox
    WHERE id = ANY ($2::uuid[]) AND num_nonnulls(published_at) = 1 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o
SET replay_id = $1::uuid, last_published_at = greatest(o.last_published_at, now(), o.created_at)
FROM mine WHERE o.id = mine.id AND num_nonnulls(o.published_at) = 1
