-- Paused, whoever is at a slice: that one's books are written, and no other is claimed.
UPDATE holdfast.job SET state = 'paused', reason = $3::text
WHERE id = $1::uuid AND kind = $2::text AND state IN ('preparing', 'running')
