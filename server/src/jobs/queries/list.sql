-- Jobs of this kind, the newest first, before $2, at most $3. Their ids are made in the order of time.
SELECT id, state, requested_by, created_at, expires_at, (expires_at <= now()) IS TRUE AS expired_plan, started_at, ended_at, reason, max_rate, ramp, max_failures,
       CASE WHEN leased_until > now() THEN booked ELSE 0 END AS in_flight, matched, done, failed, expired, pruned
FROM holdfast.job WHERE kind = $1::text AND ($2::uuid IS NULL OR id < $2::uuid)
ORDER BY id DESC LIMIT $3
