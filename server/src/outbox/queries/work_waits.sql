-- What a service without work is asked, and all that it is asked: is there anything for a pass to do; which tickets do
-- undecided rows name; is the drain paused (as pause/queries/look.sql); is this a standby? One autocommitted SELECT of index probes. $1: the lease. $2: most tickets (as
-- undecided.sql's first page; 0 looks for none).
SELECT pg_is_in_recovery() AS standby,
    ARRAY(
        WITH RECURSIVE walk AS (
            (SELECT ticket FROM holdfast.event_outbox WHERE ticket IS NOT NULL AND $2::bigint > 0 ORDER BY ticket LIMIT 1)
            UNION ALL
            SELECT (SELECT o.ticket FROM holdfast.event_outbox AS o
                    WHERE o.ticket IS NOT NULL AND o.ticket > walk.ticket
                    ORDER BY o.ticket LIMIT 1)
            FROM walk WHERE walk.ticket IS NOT NULL
        )
        SELECT ticket FROM walk WHERE ticket IS NOT NULL LIMIT $2
    ) AS tickets,
    EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE admitted_at IS NULL AND ticket IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
                 AND published_at IS NULL AND num_nonnulls(claimed_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE next_attempt_at <= now() AND lone_claims < 2 AND num_nonnulls(published_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE next_attempt_at <= now() AND lone_claims >= 2 AND num_nonnulls(published_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.outbox_claim
               WHERE claimed_at < now() - $1::float8 * interval '1 second'
                  OR claimed_at > now() + $1::float8 * interval '1 second')
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox WHERE is_head AND num_nonnulls(claimed_at) = 0) AS work,
    p.paused_by, CASE WHEN isfinite(p.paused_at) THEN (extract(epoch FROM p.paused_at) * 1000000)::bigint ELSE 0 END AS since,
    p.reason
FROM (VALUES (true)) AS asked (one) LEFT JOIN holdfast.drain_pause AS p ON p.one = asked.one
