-- Ends a pause; tells which.
DELETE FROM holdfast.drain_pause WHERE one
RETURNING paused_by, CASE WHEN isfinite(paused_at) THEN (extract(epoch FROM paused_at) * 1000000)::bigint ELSE 0 END AS since, reason
