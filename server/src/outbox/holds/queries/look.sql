-- The watch's look: how many rows are held, and the oldest of them. Times that hand-written SQL made up count from the epoch, or
-- from now.
SELECT (SELECT count(*) FROM holdfast.event_outbox
        WHERE hold_operation_id IS NOT NULL AND ticket IS NULL AND published_at IS NULL) AS rows,
       oldest.operation_id, oldest.generation, coalesce(oldest.age, 0) AS age
FROM (SELECT) AS always LEFT JOIN LATERAL (
    SELECT left(hold_operation_id, 255) AS operation_id, hold_generation AS generation,
           extract(epoch FROM now() - least(greatest(created_at, 'epoch'), now()))::bigint AS age
    FROM holdfast.event_outbox
    WHERE hold_operation_id IS NOT NULL AND ticket IS NULL AND published_at IS NULL
    ORDER BY created_at LIMIT 1
) AS oldest ON true
