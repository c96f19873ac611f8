-- What these replays are about.
SELECT job_id, window_from, window_to, event_type, ordering_key, published_before, upper_seq, not_published
FROM holdfast.replay WHERE job_id = ANY ($1::uuid[])
