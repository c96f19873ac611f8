-- Tickets that undecided rows name, above $1, ascending, at most $2, each with its rows: at most 1,000 are looked at. A walk over
-- the index that touches one entry a ticket.
WITH RECURSIVE walk AS (
    (SELECT ticket FROM holdfast.event_outbox
     WHERE ticket IS NOT NULL AND ticket > coalesce($1::bigint, -9223372036854775808)
     ORDER BY ticket LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ticket FROM holdfast.event_outbox AS o
            WHERE o.ticket IS NOT NULL AND o.ticket > walk.ticket
            ORDER BY o.ticket LIMIT 1)
    FROM walk WHERE walk.ticket IS NOT NULL
), page AS MATERIALIZED (
    SELECT ticket FROM walk WHERE ticket IS NOT NULL LIMIT $2
)
SELECT page.ticket, theirs.events,
       CASE WHEN theirs.oldest BETWEEN 'epoch' AND '9999-12-31' THEN theirs.oldest END AS oldest
FROM page CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(few.created_at) AS oldest
    FROM (SELECT o.created_at FROM holdfast.event_outbox AS o WHERE o.ticket = page.ticket LIMIT 1000) AS few
) AS theirs
ORDER BY page.ticket
