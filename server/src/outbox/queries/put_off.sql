-- A row that makes its claim fail (hand-written SQL can put in values that no claim can compute with or render) waits like one
-- whose attempt failed, so that the others go on. $1: the row, alone in a claim that failed. $2: why.
UPDATE holdfast.event_outbox
SET admitted_at = now(), next_attempt_at = now() + interval '15 minutes',
    attempts = least(attempts, 2147483646) + 1, last_error = $2
WHERE id = $1 AND num_nonnulls(ticket, hold_operation_id, parked_at, claimed_at, published_at) = 0
