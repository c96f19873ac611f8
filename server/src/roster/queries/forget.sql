DELETE FROM holdfast.known_service WHERE name = $1
RETURNING name, undelivered, counted_at, last_seen, last_seen > now() - interval '2 minutes' AS served
