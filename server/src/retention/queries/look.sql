-- Where the cadence stands, by the database's clock. $1: the interval, $2: the lease, both in seconds. No row: no cycle yet.
-- (due, free: as in start.sql.)
SELECT coalesce(leased_until IS NULL
                OR clock_timestamp() NOT BETWEEN leased_until - 2 * $2::float8 * interval '1 second' AND leased_until,
                true) AS free,
       leased_until IS NOT NULL
           OR clock_timestamp() NOT BETWEEN started_at - $1::float8 * interval '1 second'
                                        AND started_at + $1::float8 * (1 + jitter) * interval '1 second' AS due,
       coalesce(extract(epoch FROM succeeded_at)::bigint, 0) AS succeeded, capped
FROM holdfast.retention_cycle
