-- What came of a call. Said once: a second time changes nothing.
INSERT INTO holdfast.admin_audit_outcome (call, outcome, counts, reason)
VALUES ($1, $2, $3::text::jsonb, $4)
ON CONFLICT (call) DO NOTHING
