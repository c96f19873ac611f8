-- Distinct tickets of undecided rows above $1, ascending: a walk over the index that touches one entry a ticket.
WITH RECURSIVE walk AS (
    (SELECT ticket FROM holdfast.event_inbox
     WHERE ticket IS NOT NULL AND ($1::bigint IS NULL OR ticket > $1)
     ORDER BY ticket LIMIT 1)
    UNION ALL
    SELECT (SELECT i.ticket FROM holdfast.event_inbox AS i
            WHERE i.ticket IS NOT NULL AND i.ticket > walk.ticket
            ORDER BY i.ticket LIMIT 1)
    FROM walk WHERE walk.ticket IS NOT NULL
)
SELECT ticket FROM walk WHERE ticket IS NOT NULL LIMIT $2
