-- What admins did, allowed or denied (design, sections 8 and 12). Append-only: UPDATE, DELETE and TRUNCATE are refused by
-- trigger to everybody, and by grant to the server's role (deploy/postgres/roles.sql).

CREATE TABLE holdfast.admin_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    request_id text NOT NULL,
    sub        text NOT NULL,
    service    text,
    verb       text NOT NULL,
    allowed    boolean NOT NULL,
    -- Arguments without payload.
    arguments  jsonb NOT NULL,
    counts     jsonb
);
CREATE INDEX admin_audit_at ON holdfast.admin_audit (at);

CREATE FUNCTION holdfast.refuse_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER admin_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.admin_audit
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
