-- Distinct tickets of undecided rows above $1, ascending: a walk over the index that touches one entry a ticket, so that a
-- long transaction with many rows costs no more than one with a single row.
WITH RECURSIVE walk AS (
    (SELECT ticket FROM holdfast.event_outbox
     WHERE ticket IS NOT NULL AND ($1::bigint IS NULL OR ticket > $1)
     ORDER BY ticket LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ticket FROM holdfast.event_outbox AS o
            WHERE o.ticket IS NOT NULL AND o.ticket > walk.ticket
            ORDER BY o.ticket LIMIT 1)
    FROM walk WHERE walk.ticket IS NOT NULL
)
SELECT ticket FROM walk WHERE ticket IS NOT NULL LIMIT $2
