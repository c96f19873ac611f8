-- These rows of a lane could not be sent, and why.
UPDATE holdfast.replay_row AS r SET error = f.error
FROM unnest($2::bigint[], $3::text[]) AS f (seq, error)
WHERE r.job_id = $1::uuid AND r.seq = f.seq
