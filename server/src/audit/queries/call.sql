-- An admin's call, before it acts; or one that was denied.
INSERT INTO holdfast.admin_audit (request_id, sub, service, verb, allowed, arguments, missing_scope)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7)
RETURNING id
