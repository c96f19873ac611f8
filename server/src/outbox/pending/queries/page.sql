-- Unpublished rows by seq, and why each is not out. Looks at $6 rows and no more, whatever is asked for; how far it came (`last`)
-- and at how many it looked are in every line, and in a line of their own where nothing matches.
-- $1: greater than this seq. $2, $3: only this type, this key. $4: only these reasons. $5: most rows. $7, $8: whether unroutable
-- and parked rows hold their keys back. What blocks a row is looked for among the first 100 of its key: where parked rows
-- block nobody there may be any number of them. Texts are bounded; hand-written SQL may say 'infinity'.
WITH scanned AS MATERIALIZED (
    SELECT id, seq, event_type, ordering_key, created_at, attempts, last_error, next_attempt_at, ticket, hold_operation_id,
           hold_generation, parked_at, parked_reason, claimed_at, claimed_by, admitted_at, lone_claims, unroutable
    FROM holdfast.event_outbox
    WHERE published_at IS NULL AND (seq + 0) > coalesce($1::bigint, -9223372036854775808)
    ORDER BY (seq + 0) LIMIT $6
), edge AS MATERIALIZED (
    SELECT max(seq) AS last, count(*) AS looked FROM scanned
), judged AS (
    SELECT s.*, before.id AS behind,
           CASE WHEN s.ticket IS NOT NULL THEN 'unresolved'
                WHEN s.hold_operation_id IS NOT NULL THEN 'held'
                WHEN s.parked_at IS NOT NULL THEN 'parked'
                WHEN s.claimed_at IS NOT NULL THEN 'in_flight'
                WHEN s.next_attempt_at > now() THEN CASE WHEN s.unroutable THEN 'unroutable' ELSE 'backing_off' END
                WHEN before.id IS NOT NULL OR (s.admitted_at IS NOT NULL AND s.next_attempt_at IS NULL) THEN 'behind'
                WHEN EXISTS (SELECT FROM holdfast.drain_pause) THEN 'paused'
                WHEN s.lone_claims >= 2 THEN 'alone'
                ELSE 'ready' END AS why
    FROM scanned AS s LEFT JOIN LATERAL (
        SELECT early.id FROM (
            SELECT b.id, ($7 OR NOT (b.unroutable AND b.next_attempt_at IS NOT NULL)) AND ($8 OR b.parked_at IS NULL) AS blocks
            FROM holdfast.event_outbox AS b
            WHERE b.ordering_key = s.ordering_key AND b.seq < s.seq AND b.ticket IS NULL AND b.hold_operation_id IS NULL
              AND b.published_at IS NULL
              AND s.ordering_key <> '' AND num_nonnulls(s.ticket, s.hold_operation_id, s.parked_at, s.claimed_at) = 0
            ORDER BY b.seq LIMIT 100) AS early
        WHERE early.blocks LIMIT 1
    ) AS before ON true
    WHERE ($2::text IS NULL OR s.event_type = $2) AND ($3::text IS NULL OR s.ordering_key = $3)
), matching AS MATERIALIZED (
    SELECT * FROM judged WHERE $4::text[] IS NULL OR why = ANY ($4) ORDER BY seq LIMIT $5
)
SELECT edge.last, edge.looked, m.id, m.seq, m.why, m.behind,
       left(m.event_type, 255) AS event_type, left(m.ordering_key, 1024) AS ordering_key,
       CASE WHEN m.created_at BETWEEN 'epoch' AND '9999-12-31' THEN m.created_at END AS created_at,
       m.attempts, left(m.last_error, 1024) AS last_error,
       CASE WHEN m.next_attempt_at BETWEEN 'epoch' AND '9999-12-31' THEN m.next_attempt_at END AS next_attempt_at,
       m.ticket, left(m.hold_operation_id, 1024) AS hold_operation_id, m.hold_generation,
       CASE WHEN m.parked_at BETWEEN 'epoch' AND '9999-12-31' THEN m.parked_at END AS parked_at,
       left(m.parked_reason, 1024) AS parked_reason,
       CASE WHEN m.claimed_at BETWEEN 'epoch' AND '9999-12-31' THEN m.claimed_at END AS claimed_at,
       left(m.claimed_by, 255) AS claimed_by, m.lone_claims >= 2 AS alone
FROM edge LEFT JOIN matching AS m ON true
ORDER BY m.seq
