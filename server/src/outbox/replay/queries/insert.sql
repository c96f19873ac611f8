-- What a replay is about.
INSERT INTO holdfast.replay
    (job_id, window_from, window_to, event_type, ordering_key, published_before, upper_seq, not_published)
VALUES ($1::uuid, $2::timestamptz, $3::timestamptz, $4::text, $5::text, $6::timestamptz, $7::bigint, $8::bigint)
