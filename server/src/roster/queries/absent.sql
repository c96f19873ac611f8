SELECT name, undelivered, counted_at, last_seen FROM holdfast.known_service WHERE name <> ALL ($1::text[]) ORDER BY name
