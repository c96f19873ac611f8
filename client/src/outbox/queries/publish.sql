-- One event in the caller's own transaction (ADR-022 D1). No ticket: the row's transaction is the caller's, so the row
-- is visible exactly if that committed, and `resolved_at` may keep its default.
-- $7: the event has no time of its own and gets the database's clock, written as the server writes it (RFC 3339 in UTC
-- with 0, 3 or 6 digits of a second). `||` adds it to the document.
-- The conflict names no column: to name one needs SELECT on it, and a publisher has INSERT only.
INSERT INTO holdfast.event_outbox (id, aggregate_id, event_type, envelope, ordering_key, content_hash)
VALUES ($1::uuid, $2::uuid, $3::text,
        CASE WHEN $7::boolean
             THEN $4::text::jsonb || jsonb_build_object('time', regexp_replace(
                      to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
                      '(\.000000|000)$', '') || 'Z')
             ELSE $4::text::jsonb
        END,
        $5::text, $6::bytea)
ON CONFLICT DO NOTHING
