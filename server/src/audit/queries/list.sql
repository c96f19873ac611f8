-- A page of calls, the newest first. Ids are handed out in the order of the calls' beginnings.
SELECT a.id, a.at, a.request_id, a.sub, a.service, a.verb, a.allowed, a.missing_scope, a.arguments::text AS arguments,
       o.at AS ended_at, o.outcome, o.counts::text AS counts, o.reason
FROM holdfast.admin_audit a
LEFT JOIN holdfast.admin_audit_outcome o ON o.call = a.id
WHERE a.id < coalesce($1, 9223372036854775807)
  AND ($2::text IS NULL OR a.service = $2)
  AND ($3::text IS NULL OR a.sub = $3)
  AND ($4::text IS NULL OR a.verb = $4)
  AND ($5::timestamptz IS NULL OR a.at >= $5)
  AND ($6::timestamptz IS NULL OR a.at < $6)
ORDER BY a.id DESC
LIMIT $7
