-- The next row that must be claimed alone, locked. It was claimed before, so the undecided rows before it were asked then.
SELECT id FROM holdfast.event_outbox
WHERE next_attempt_at <= now() AND lone_claims >= 2
  AND num_nonnulls(published_at, ticket, hold_operation_id, parked_at, claimed_at) = 0
ORDER BY next_attempt_at, seq LIMIT 1 FOR UPDATE SKIP LOCKED
