-- A row that makes its claim fail (hand-written SQL can put in values that no claim can compute with or render) is set aside,
-- so that the others go on. $1: the row, alone in a claim that failed. $2: why.
UPDATE holdfast.event_outbox AS o
SET admitted_at = now(), attempts = least(attempts, 2147483646) + 1, last_error = $2, parked_at = now(), parked_reason = $2,
    unroutable = false, next_attempt_at = NULL
WHERE id = $1 AND num_nonnulls(ticket, hold_operation_id, parked_at, claimed_at, published_at) = 0
RETURNING o.id, o.ordering_key AS key, true AS parked, $2 AS reason,
          CASE WHEN o.ordering_key <> '' THEN
              (SELECT count(*) FROM (SELECT FROM holdfast.event_outbox AS b
                                     WHERE b.ordering_key = o.ordering_key AND b.seq > o.seq AND b.ticket IS NULL
                                       AND b.hold_operation_id IS NULL AND b.published_at IS NULL LIMIT 1000) AS behind)
          ELSE 0 END AS behind
