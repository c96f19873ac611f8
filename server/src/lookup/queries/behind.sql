-- The first deliverable row of the key $1 before $2: what a row that was set aside waits for, or waits for in turn.
SELECT id FROM holdfast.event_outbox
WHERE ordering_key = $1 AND ticket IS NULL AND hold_operation_id IS NULL AND published_at IS NULL AND seq < $2
ORDER BY seq LIMIT 1
