-- The cycle $1 has come to its end; $2: at its cap. No row: it is no longer ours.
UPDATE holdfast.retention_cycle SET leased_until = NULL, succeeded_at = clock_timestamp(), capped = $2
WHERE one AND generation = $1 AND leased_until IS NOT NULL
RETURNING extract(epoch FROM succeeded_at)::bigint
