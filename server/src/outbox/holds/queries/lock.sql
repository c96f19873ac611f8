-- A pair's lock, exclusive: once it is held the pair's stages are over, or wait, and what they have written is visible to a later
-- statement. Waited for, at most $3, so that a stream of stages cannot keep a release out; rows are then waited for $4.
WITH own AS MATERIALIZED (
    SELECT set_config('lock_timeout', $3::text, true) AS patience
), locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock($1::integer, $2::integer) FROM own
)
SELECT set_config('lock_timeout', $4::text, true) FROM locked
