-- Rows that already bear one of these ids.
SELECT id, ticket, content_hash FROM holdfast.event_outbox WHERE id = ANY ($1::uuid[])
