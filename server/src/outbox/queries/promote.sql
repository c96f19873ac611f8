-- Gives back the followers at the front of each key: the key's run of set-aside rows from its lowest deliverable row on,
-- at most $2 a key, up to the first row that is not a plain follower. Nothing while a row of the key is in flight: its end
-- looks again. Only under the service's lock, in a later statement. $3: whether an unroutable row holds its key back; $4: whether
-- a parked one does. A row that must be claimed alone is not made fresh, but due.
WITH asked AS MATERIALIZED (
    SELECT DISTINCT k AS key FROM unnest($1::text[]) AS k WHERE k <> ''
), open AS MATERIALIZED (
    SELECT entry.id, entry.key FROM holdfast.outbox_claim AS c CROSS JOIN LATERAL unnest(c.ids, c.keys) AS entry (id, key)
    WHERE (entry.key IN (SELECT key FROM asked)) IS TRUE
), busy AS MATERIALIZED (
    SELECT open.key FROM open CROSS JOIN LATERAL (
        SELECT FROM holdfast.event_outbox AS f
        WHERE f.id = open.id AND num_nonnulls(f.claimed_at) = 1 AND num_nonnulls(f.published_at) = 0 OFFSET 0) AS f
), keys AS MATERIALIZED (
    SELECT key FROM asked WHERE (key IN (SELECT key FROM busy)) IS NOT TRUE
), run AS MATERIALIZED (
    SELECT line.id FROM keys CROSS JOIN LATERAL (
        SELECT front.id, bool_and(front.aside) OVER (ORDER BY front.seq) AS aside
        FROM (SELECT o.id, o.seq,
                     (o.admitted_at IS NOT NULL AND o.next_attempt_at IS NULL AND o.parked_at IS NULL) AS aside
              FROM holdfast.event_outbox AS o
              WHERE o.ordering_key = keys.key AND o.ticket IS NULL AND o.hold_operation_id IS NULL
                AND o.published_at IS NULL
                AND ($3 OR NOT (o.unroutable AND o.next_attempt_at IS NOT NULL)) AND ($4 OR o.parked_at IS NULL)
              ORDER BY o.seq LIMIT $2) AS front
    ) AS line
    WHERE line.aside
), locked AS MATERIALIZED (
    -- A look-up a row, in the order of ids, and no join: how many rows are in this state is nothing a planner could know (it thinks of
    -- two), and a nested loop over two lists of ten thousand takes longer than a settle may.
    -- A row that a stranger has locked must not fail the stamp of its front, or a whole pass: the sweep finds it later.
    SELECT one.id FROM (SELECT id FROM run ORDER BY id) AS run CROSS JOIN LATERAL (
        SELECT o.id FROM holdfast.event_outbox AS o
        WHERE o.id = run.id AND num_nonnulls(o.admitted_at) = 1
          AND num_nonnulls(o.claimed_at, o.next_attempt_at, o.parked_at, o.published_at) = 0
        FOR UPDATE SKIP LOCKED) AS one
)
UPDATE holdfast.event_outbox AS o
SET admitted_at = CASE WHEN o.lone_claims >= 2 THEN o.admitted_at END,
    next_attempt_at = CASE WHEN o.lone_claims >= 2 THEN now() END
WHERE o.id = ANY (ARRAY(SELECT id FROM locked)) AND num_nonnulls(o.admitted_at) = 1
  AND num_nonnulls(o.claimed_at, o.next_attempt_at, o.parked_at, o.published_at) = 0
