-- How an admin's call ended. The call is written into holdfast.admin_audit before it acts, and what came of it here, after: one
-- row a call, or none where the server died in between (then nobody knows, and the audit says so). Append-only, as the other.

CREATE TABLE holdfast.admin_audit_outcome (
    call    bigint PRIMARY KEY REFERENCES holdfast.admin_audit (id),
    at      timestamptz NOT NULL DEFAULT now(),
    outcome text NOT NULL CHECK (outcome IN ('done', 'failed')),
    -- Of a call that was done: matched, acted, skipped, …
    counts  jsonb,
    -- Of one that failed: a reason of error_reason.proto.
    reason  text
);
CREATE TRIGGER admin_audit_outcome_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.admin_audit_outcome
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();

-- Of a denied call: what it would have taken. (`counts` of this table stays empty: they are not known before the act.)
ALTER TABLE holdfast.admin_audit ADD COLUMN missing_scope text;
CREATE INDEX admin_audit_service ON holdfast.admin_audit (service, id);
