-- The minute's sweep: keys whose lowest deliverable row was set aside and waits for nobody, because a promotion was missed.
-- Walks the index of set-aside rows, one entry a key. $1: whether an unroutable row holds its key back; $2: whether a parked one
-- does.
WITH RECURSIVE aside AS (
    (SELECT ordering_key AS key FROM holdfast.event_outbox
     WHERE ordering_key > '' AND admitted_at IS NOT NULL AND next_attempt_at IS NULL AND parked_at IS NULL
       AND published_at IS NULL
     ORDER BY ordering_key LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ordering_key FROM holdfast.event_outbox AS o
            WHERE o.ordering_key > aside.key AND o.admitted_at IS NOT NULL AND o.next_attempt_at IS NULL
              AND o.parked_at IS NULL AND o.published_at IS NULL
            ORDER BY o.ordering_key LIMIT 1)
    FROM aside WHERE aside.key IS NOT NULL
)
SELECT aside.key FROM aside CROSS JOIN LATERAL (
    SELECT o.admitted_at, o.next_attempt_at, o.parked_at FROM holdfast.event_outbox AS o
    WHERE o.ordering_key = aside.key AND o.ticket IS NULL AND o.hold_operation_id IS NULL AND o.published_at IS NULL
      AND ($1 OR NOT (o.unroutable AND o.next_attempt_at IS NOT NULL)) AND ($2 OR o.parked_at IS NULL)
    ORDER BY o.seq LIMIT 1
) AS front
WHERE aside.key IS NOT NULL
  AND front.admitted_at IS NOT NULL AND front.next_attempt_at IS NULL AND front.parked_at IS NULL
  AND NOT EXISTS (SELECT FROM holdfast.outbox_claim AS c CROSS JOIN LATERAL unnest(c.ids, c.keys) AS entry (id, key)
                  CROSS JOIN LATERAL (SELECT FROM holdfast.event_outbox AS f
                                      WHERE f.id = entry.id AND num_nonnulls(f.claimed_at) = 1
                                        AND num_nonnulls(f.published_at) = 0 OFFSET 0) AS f
                  WHERE entry.key = aside.key)
LIMIT 1000
