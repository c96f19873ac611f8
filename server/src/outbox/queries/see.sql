-- What this pass may take, locked; and, in the same statement, the tickets of earlier undecided rows of the same keys that
-- turn out to be free: they must be decided before anything behind them leaves. A ticket found open here belongs to a
-- transaction that ends after the rows returned here were staged, so it holds nobody back.
-- $1: tickets that committed (probed and looked up in earlier statements). $2: most rows. $3: most free tickets.
WITH fresh AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size
    FROM holdfast.event_outbox
    WHERE admitted_at IS NULL AND ticket IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
      AND published_at IS NULL
    ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size
    FROM holdfast.event_outbox
    WHERE next_attempt_at <= now() AND published_at IS NULL AND admitted_at IS NOT NULL AND ticket IS NULL
      AND hold_operation_id IS NULL AND parked_at IS NULL AND claimed_at IS NULL
    ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED
), hinted AS MATERIALIZED (
    SELECT id, seq, ordering_key, pg_column_size(envelope) AS size
    FROM holdfast.event_outbox
    WHERE ticket = ANY ($1::bigint[]) AND admitted_at IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
      AND published_at IS NULL
    ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT * FROM fresh UNION ALL SELECT * FROM due UNION ALL SELECT * FROM hinted
), keys AS MATERIALIZED (
    SELECT ordering_key, max(seq) AS last FROM seen WHERE ordering_key <> '' GROUP BY ordering_key
), earlier AS MATERIALIZED (
    SELECT DISTINCT undecided.ticket
    FROM keys CROSS JOIN LATERAL (
        SELECT o.id, o.ticket FROM holdfast.event_outbox AS o
        WHERE o.ordering_key = keys.ordering_key AND o.seq < keys.last AND o.ticket IS NOT NULL
        -- A fence: without it the planner reads every undecided row there is, to join them with the keys.
        OFFSET 0
    ) AS undecided
    WHERE NOT EXISTS (SELECT 1 FROM hinted WHERE hinted.id = undecided.id)
), free AS MATERIALIZED (
    SELECT ticket FROM earlier WHERE pg_try_advisory_xact_lock_shared(ticket) LIMIT $3
)
SELECT id, seq, (ordering_key <> '') IS TRUE AS keyed, size, NULL::bigint AS free_ticket FROM seen
UNION ALL
SELECT NULL, NULL, NULL, NULL, ticket FROM free
