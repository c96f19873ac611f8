-- Ended by somebody. What a slice under way has in hand is sent all the same, and counted.
UPDATE holdfast.job SET state = 'cancelled', ended_at = now(), reason = $3::text, next_at = now(), expires_at = NULL
WHERE id = $1::uuid AND kind = $2::text AND state IN ('planned', 'preparing', 'running', 'paused')
