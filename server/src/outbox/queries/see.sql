-- What this pass may take, locked; and, in the same statement, the tickets of earlier undecided rows of the same keys that
-- turn out to be free: they must be decided before anything behind them leaves. A ticket found open here belongs to a
-- transaction that ends after the rows returned here were staged, so it holds nobody back.
-- A key's undecided tickets are walked one index entry a ticket, so that an open transaction with a million rows costs one.
-- $1: tickets that committed (probed and looked up in earlier statements). $2: most rows. $3: most free tickets.
WITH fresh AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size,
           pg_column_compression(envelope) IS NOT NULL AS compressed
    FROM holdfast.event_outbox
    WHERE admitted_at IS NULL AND ticket IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
      AND published_at IS NULL AND num_nonnulls(claimed_at) = 0
    ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size,
           pg_column_compression(envelope) IS NOT NULL AS compressed
    FROM holdfast.event_outbox
    WHERE next_attempt_at <= now() AND lone_claims < 2 AND admitted_at IS NOT NULL
      AND num_nonnulls(published_at, ticket, hold_operation_id, parked_at, claimed_at) = 0
    ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED
), hinted AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size,
           pg_column_compression(envelope) IS NOT NULL AS compressed
    FROM holdfast.event_outbox
    WHERE ticket = ANY ($1::bigint[])
      AND num_nonnulls(admitted_at, published_at, hold_operation_id, parked_at, claimed_at) = 0
    ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT * FROM fresh UNION ALL SELECT * FROM due UNION ALL SELECT * FROM hinted
), keys AS MATERIALIZED (
    SELECT DISTINCT ordering_key FROM seen WHERE ordering_key <> ''
), earlier AS MATERIALIZED (
    SELECT DISTINCT undecided.ticket
    FROM keys CROSS JOIN LATERAL (
        WITH RECURSIVE walk AS (
            (SELECT o.ticket FROM holdfast.event_outbox AS o
             WHERE o.ordering_key = keys.ordering_key AND o.ticket IS NOT NULL
             ORDER BY o.ticket LIMIT 1)
            UNION ALL
            SELECT (SELECT o.ticket FROM holdfast.event_outbox AS o
                    WHERE o.ordering_key = keys.ordering_key AND o.ticket > walk.ticket
                    ORDER BY o.ticket LIMIT 1)
            FROM walk WHERE walk.ticket IS NOT NULL
        )
        SELECT walk.ticket FROM walk WHERE walk.ticket IS NOT NULL
    ) AS undecided
    -- A committed ticket is done with, unless some of its rows were skipped or cut off above. (Not EXISTS: PostgreSQL 18 would
    -- hash all rows that are not in `hinted`, which is the whole table.)
    WHERE undecided.ticket <> ALL ($1::bigint[])
       OR (SELECT true FROM holdfast.event_outbox AS o
           WHERE o.ticket = undecided.ticket AND (o.id IN (SELECT id FROM hinted)) IS NOT TRUE LIMIT 1)
), free AS MATERIALIZED (
    SELECT ticket FROM earlier WHERE pg_try_advisory_xact_lock_shared(ticket) LIMIT $3
)
SELECT id, seq, (ordering_key <> '') IS TRUE AS keyed, size, compressed, NULL::bigint AS free_ticket FROM seen
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, ticket FROM free
