-- Who paused the drain, since when (microseconds since 1970) and why; no row: nobody did. Without parameters: it is sent along
-- with a BEGIN.
SELECT paused_by, CASE WHEN isfinite(paused_at) THEN (extract(epoch FROM paused_at) * 1000000)::bigint ELSE 0 END AS since, reason
FROM holdfast.drain_pause
