-- A batch's last statement: adds its $2 rows to the cycle and lengthens the lease to $3 seconds from now. No row: the cycle is no longer
-- ours ($1), and the batch is rolled back.
UPDATE holdfast.retention_cycle
SET pruned = pruned + $2, leased_until = clock_timestamp() + $3::float8 * interval '1 second'
WHERE one AND generation = $1 AND leased_until IS NOT NULL
RETURNING true
