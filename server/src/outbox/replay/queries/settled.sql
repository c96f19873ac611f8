-- These rows of a lane are dealt with. $2: their seqs. $3: nothing at or before this is left to be sent.
WITH gone AS (
    DELETE FROM holdfast.replay_row WHERE job_id = $1::uuid AND seq = ANY ($2::bigint[])
)
UPDATE holdfast.replay SET sent_to = greatest(sent_to, $3::bigint) WHERE job_id = $1::uuid
