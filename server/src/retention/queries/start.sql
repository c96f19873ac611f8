-- Begins a cycle if one is due, or goes on with one whose lease ran out; no row: neither, now. $1: the interval, $2: the lease, both
-- in seconds. $3: the next cycle's jitter. By the clock and not by now(): who waited here for another one's start must see that
-- start in the past. A time that lies further ahead than any of ours can is no time: the clock was set back.
INSERT INTO holdfast.retention_cycle AS c (generation, started_at, jitter, leased_until, pruned)
VALUES (1, clock_timestamp(), $3, clock_timestamp() + $2::float8 * interval '1 second', 0)
ON CONFLICT (one) DO UPDATE SET
    generation = c.generation + 1,
    leased_until = clock_timestamp() + $2::float8 * interval '1 second',
    (started_at, jitter, pruned) = (
        SELECT CASE WHEN due.now THEN clock_timestamp() ELSE c.started_at END,
               CASE WHEN due.now THEN excluded.jitter ELSE c.jitter END,
               CASE WHEN due.now THEN 0 ELSE c.pruned END
        FROM (SELECT clock_timestamp() NOT BETWEEN c.started_at - $1::float8 * interval '1 second'
                     AND c.started_at + $1::float8 * (1 + c.jitter) * interval '1 second' AS now) AS due)
WHERE CASE
    WHEN c.leased_until IS NULL THEN
        clock_timestamp() NOT BETWEEN c.started_at - $1::float8 * interval '1 second'
                              AND c.started_at + $1::float8 * (1 + c.jitter) * interval '1 second'
    ELSE clock_timestamp() NOT BETWEEN c.leased_until - 2 * $2::float8 * interval '1 second' AND c.leased_until
    END
RETURNING generation, pruned
