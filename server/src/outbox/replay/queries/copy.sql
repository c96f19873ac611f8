-- Copies the next part of the set, at least $2 events of the window (all of one moment stay together), into the replay's lane.
-- Subqueries and no joins: the planner does not know that one row on the other side leaves the index's order, and would sort all of
-- the window in each part.
WITH about AS MATERIALIZED (
    SELECT *, greatest(copied_to, '-infinity') AS behind FROM holdfast.replay WHERE job_id = $1::uuid
), boundary AS MATERIALIZED (
    SELECT created_at FROM holdfast.event_outbox
    WHERE published_at IS NOT NULL AND created_at >= (SELECT window_from FROM about) AND created_at < (SELECT window_to FROM about)
      AND created_at > (SELECT behind FROM about)
    ORDER BY created_at OFFSET $2 LIMIT 1
), put AS (
    INSERT INTO holdfast.replay_row (job_id, seq, event_id)
    SELECT about.job_id, o.seq, o.id FROM about, holdfast.event_outbox AS o
    WHERE o.published_at IS NOT NULL AND o.created_at >= about.window_from AND o.created_at < about.window_to
      AND o.created_at > about.behind AND o.created_at <= coalesce((SELECT created_at FROM boundary), 'infinity')
      AND (about.event_type IS NULL OR o.event_type = about.event_type)
      AND (about.ordering_key IS NULL OR o.ordering_key = about.ordering_key)
      AND coalesce(o.first_published_at, o.published_at) < about.published_before AND o.seq <= about.upper_seq
    ON CONFLICT DO NOTHING
    RETURNING 1
)
UPDATE holdfast.replay AS r
SET copied = r.copied + (SELECT count(*) FROM put), copied_to = coalesce((SELECT created_at FROM boundary), r.window_to)
FROM about WHERE r.job_id = about.job_id AND r.copied_to IS NOT DISTINCT FROM about.copied_to AND r.copied_to IS DISTINCT FROM r.window_to
RETURNING r.copied, r.copied_to = r.window_to AS whole
