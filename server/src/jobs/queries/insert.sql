-- A plan. $4: for how long it can be run, in seconds.
INSERT INTO holdfast.job (id, kind, state, requested_by, expires_at, max_rate, ramp, max_failures, matched)
VALUES ($1::uuid, $2::text, 'planned', $3::text, now() + $4::float8 * interval '1 second', $5::integer, $6::integer, $7::float8, $8::bigint)
