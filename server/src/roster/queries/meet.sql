-- These are configured.
INSERT INTO holdfast.known_service (name)
SELECT name FROM unnest($1::text[]) AS configured (name) ORDER BY name
ON CONFLICT (name) DO UPDATE SET last_seen = now()
