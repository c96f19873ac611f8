-- A job of this kind as it stands.
SELECT id, state, requested_by, created_at, expires_at, (expires_at <= now()) IS TRUE AS expired_plan, started_at, ended_at, reason, max_rate, ramp, max_failures,
       CASE WHEN leased_until > now() THEN booked ELSE 0 END AS in_flight, matched, done, failed, expired, pruned
FROM holdfast.job WHERE id = $1::uuid AND kind = $2::text
