-- The next events of a replay's lane, in the order of staging, at most $2 of them and about $4 bytes. $3: the horizon in seconds; absent:
-- none. `state`: gone (pruned, or replaced since), expired (beyond the horizon), or goes.
-- A walk, one look-up in the index a row: asked for all at once, a planner without statistics (they come a minute after the copying)
-- reads and sorts everything that is left.
WITH RECURSIVE walk AS (
    (SELECT seq, event_id, 1 AS place FROM holdfast.replay_row
     WHERE job_id = $1::uuid AND seq > (SELECT sent_to FROM holdfast.replay WHERE job_id = $1::uuid) AND error IS NULL
     ORDER BY seq LIMIT 1)
    UNION ALL
    SELECT following.seq, following.event_id, walk.place + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT r.seq, r.event_id FROM holdfast.replay_row AS r
        WHERE r.job_id = $1::uuid AND r.seq > walk.seq AND r.error IS NULL ORDER BY r.seq LIMIT 1) AS following
    WHERE walk.place < $2
), lane AS MATERIALIZED (
    SELECT seq, event_id FROM walk
), seen AS MATERIALIZED (
    SELECT lane.seq, lane.event_id, o.id IS NULL AS gone,
           (o.created_at < now() - $3::float8 * interval '1 second') IS TRUE AS expired,
           -- What is compressed may be many times as long.
           sum(pg_column_size(o.envelope) * CASE WHEN pg_column_compression(o.envelope) IS NULL THEN 1 ELSE 10 END)
               OVER (ORDER BY lane.seq) AS bytes,
           row_number() OVER (ORDER BY lane.seq) AS place
    FROM lane LEFT JOIN holdfast.event_outbox AS o
        ON o.id = lane.event_id AND o.seq = lane.seq AND num_nonnulls(o.published_at) = 1
)
SELECT seen.seq, seen.event_id, CASE WHEN seen.gone THEN 'gone' WHEN seen.expired THEN 'expired' ELSE 'goes' END AS state,
       o.ordering_key, o.event_type, CASE WHEN isfinite(o.created_at) THEN extract(epoch FROM o.created_at)::bigint ELSE 0 END AS created_at,
       CASE WHEN NOT seen.expired THEN o.envelope::text END AS envelope,
       o.envelope ->> 'traceparent' AS traceparent, o.envelope ->> 'tracestate' AS tracestate
FROM seen LEFT JOIN holdfast.event_outbox AS o ON NOT seen.gone AND o.id = seen.event_id AND o.seq = seen.seq
WHERE seen.place = 1 OR coalesce(seen.bytes, 0) <= $4
ORDER BY seen.seq
