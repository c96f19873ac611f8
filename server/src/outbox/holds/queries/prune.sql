-- Tombstones that are past the outbox's retention and whose pairs have no row left go, the oldest first, at most $2. $1: the
-- retention in seconds. A tombstone is never changed, so nobody can make one of these young again; nor can it be locked (the
-- server has no right to update it).
WITH old AS MATERIALIZED (
    SELECT h.operation_id, h.generation FROM holdfast.hold_outcome AS h
    WHERE h.decided_at < now() - $1::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM holdfast.event_outbox AS o
                      WHERE o.hold_operation_id = h.operation_id AND o.hold_generation = h.generation
                        AND o.published_at IS NULL)
    ORDER BY h.decided_at LIMIT $2
), gone AS (
    DELETE FROM holdfast.hold_outcome AS h USING old
    WHERE h.operation_id = old.operation_id AND h.generation = old.generation
      AND h.decided_at < now() - $1::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM holdfast.event_outbox AS o
                      WHERE o.hold_operation_id = h.operation_id AND o.hold_generation = h.generation
                        AND o.published_at IS NULL)
    RETURNING 1
)
SELECT count(*) FROM gone
