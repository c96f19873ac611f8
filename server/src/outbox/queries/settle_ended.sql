-- Fronts that ended without the lock: taken off the list, their keys returned so that the followers are looked at.
WITH ended AS MATERIALIZED (
    SELECT id FROM holdfast.event_outbox WHERE is_head AND num_nonnulls(claimed_at) = 0
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.event_outbox AS o SET is_head = false
FROM ended WHERE o.id = ended.id AND o.is_head AND o.claimed_at IS NULL
RETURNING o.ordering_key
