-- The tombstone, under the pair's lock, which an earlier statement has taken; or how the pair was decided before.
WITH now_decided AS (
    INSERT INTO holdfast.hold_outcome (operation_id, generation, outcome) VALUES ($1, $2, $3)
    ON CONFLICT (operation_id, generation) DO NOTHING
    RETURNING outcome
)
SELECT outcome, false AS before FROM now_decided
UNION ALL
SELECT outcome, true FROM holdfast.hold_outcome
WHERE operation_id = $1 AND generation = $2 AND NOT EXISTS (SELECT FROM now_decided)
