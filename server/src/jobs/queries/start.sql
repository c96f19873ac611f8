-- A plan is run, as long as its time lasts. The rate may be another one than it was planned with.
UPDATE holdfast.job
SET state = 'preparing', started_at = now(), expires_at = NULL, next_at = now(), requested_by = $3::text,
    max_rate = coalesce($4::integer, max_rate), ramp = CASE WHEN $5::boolean THEN 1 ELSE ramp END
WHERE id = $1::uuid AND kind = $2::text AND state = 'planned' AND expires_at > now()
