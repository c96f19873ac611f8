-- Goes on from where it was. With a ramp, from its beginning.
UPDATE holdfast.job SET state = 'preparing', reason = NULL, next_at = now(), ramp = CASE WHEN ramp IS NOT NULL THEN 1 END
WHERE id = $1::uuid AND kind = $2::text AND state = 'paused'
