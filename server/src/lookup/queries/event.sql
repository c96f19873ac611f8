-- Hand-written SQL may put in times that no calendar of the caller's has; they are shown as absent.
SELECT id, event_type, ordering_key, seq, attempts, last_error,
       CASE WHEN created_at BETWEEN 'epoch' AND '9999-12-31' THEN created_at END AS created_at,
       CASE WHEN resolved_at BETWEEN 'epoch' AND '9999-12-31' THEN resolved_at END AS resolved_at,
       CASE WHEN published_at BETWEEN 'epoch' AND '9999-12-31' THEN published_at END AS published_at,
       CASE WHEN next_attempt_at BETWEEN 'epoch' AND '9999-12-31' THEN next_attempt_at END AS next_attempt_at,
       CASE WHEN claimed_at BETWEEN 'epoch' AND '9999-12-31' THEN claimed_at END AS claimed_at,
       ticket IS NOT NULL AS unresolved,
       hold_operation_id IS NOT NULL AND published_at IS NULL AS held,
       left(hold_operation_id, 255) AS operation_id, hold_generation AS generation,
       parked_at IS NOT NULL AND published_at IS NULL AS parked,
       published_at IS NOT NULL AS published,
       claimed_at IS NOT NULL AS in_flight,
       next_attempt_at > now() AS backing_off,
       unroutable,
       admitted_at IS NOT NULL AND claimed_at IS NULL AND next_attempt_at IS NULL AND published_at IS NULL AS set_aside
FROM holdfast.event_outbox WHERE id = $1
