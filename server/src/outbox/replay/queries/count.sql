-- How many events of a window are in the set, and how many are not: not published, or not for good. $1, $2: the window. $3: the type.
-- $4: the ordering key. $5: published before. $6: staged up to.
SELECT there.matched, there.late + (
           SELECT count(*) FROM holdfast.event_outbox
           WHERE published_at IS NULL AND created_at >= $1::timestamptz AND created_at < $2::timestamptz
             AND ($3::text IS NULL OR event_type = $3::text) AND ($4::text IS NULL OR ordering_key = $4::text)) AS not_published
FROM (SELECT count(*) FILTER (WHERE ours) AS matched, count(*) FILTER (WHERE NOT ours) AS late
      FROM (SELECT (coalesce(first_published_at, published_at) < $5::timestamptz AND seq <= $6::bigint) IS TRUE AS ours
            FROM holdfast.event_outbox
            WHERE published_at IS NOT NULL AND created_at >= $1::timestamptz AND created_at < $2::timestamptz
              AND ($3::text IS NULL OR event_type = $3::text) AND ($4::text IS NULL OR ordering_key = $4::text)) AS window_of) AS there
