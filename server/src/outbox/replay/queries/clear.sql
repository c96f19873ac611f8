-- What a replay that is over had still to send; at most $2.
DELETE FROM holdfast.replay_row WHERE job_id = $1::uuid AND seq IN (
    SELECT seq FROM holdfast.replay_row WHERE job_id = $1::uuid AND error IS NULL LIMIT $2)
