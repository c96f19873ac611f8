-- What is under way, counted up to $1 each: consumptions that are begun, and those that wait to be dead-lettered.
SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast.event_inbox WHERE ticket IS NOT NULL LIMIT $1) AS t)
     + (SELECT count(*) FROM (SELECT 1 FROM holdfast.event_inbox WHERE lease_until > now() LIMIT $1) AS l) AS begun,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.event_inbox
                              WHERE cause IS NOT NULL AND dead_lettered_at IS NULL LIMIT $1) AS o) AS waiting
