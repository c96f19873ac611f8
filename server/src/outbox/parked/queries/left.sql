-- Rows that a verb left alone: those that are parked all the same are locked by somebody else.
SELECT id, num_nonnulls(parked_at) = 1 AND num_nonnulls(ticket, hold_operation_id, claimed_at, published_at) = 0 AS parked
FROM holdfast.event_outbox WHERE id = ANY ($1::uuid[])
