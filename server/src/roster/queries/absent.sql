SELECT name, undelivered, counted_at, last_seen, last_seen > now() - interval '2 minutes' AS served
FROM holdfast.known_service WHERE name <> ALL ($1::text[]) ORDER BY name
