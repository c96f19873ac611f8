SELECT id, event_type, ordering_key, seq, attempts, last_error, created_at, resolved_at, published_at, next_attempt_at,
       claimed_at,
       ticket IS NOT NULL AS unresolved,
       hold_operation_id IS NOT NULL AND published_at IS NULL AS held,
       parked_at IS NOT NULL AND published_at IS NULL AS parked,
       admitted_at IS NOT NULL AND claimed_at IS NULL AND next_attempt_at IS NULL AND published_at IS NULL AS set_aside,
       coalesce(next_attempt_at <= now(), true) AS due
FROM holdfast.event_outbox WHERE id = $1
