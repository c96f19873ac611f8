-- What a replay could not send, behind $2, at most $3.
SELECT seq, event_id, error FROM holdfast.replay_row
WHERE job_id = $1::uuid AND error IS NOT NULL AND seq > $2::bigint ORDER BY seq LIMIT $3
