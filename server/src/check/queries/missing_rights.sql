-- What deploy/postgres/roles.sql gives to the server and this login does not have.
WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = 'holdfast'),
wanted AS (
    SELECT c.oid, c.relname, r.privilege
    FROM pg_class c
    JOIN ours ON ours.oid = c.relnamespace
    CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS r (privilege)
    WHERE c.relkind IN ('r', 'p')
      -- The ledgers are the migrator's, an audit only grows, and a decision about a hold is final.
      AND NOT (c.relname IN ('schema_migrations', 'control_migrations') AND r.privilege <> 'SELECT')
      AND NOT (c.relname IN ('admin_audit', 'admin_audit_outcome') AND r.privilege IN ('UPDATE', 'DELETE'))
      AND NOT (c.relname = 'hold_outcome' AND r.privilege = 'UPDATE')
)
SELECT 'USAGE on schema holdfast' AS missing
FROM ours
WHERE NOT has_schema_privilege(ours.oid, 'USAGE')
UNION ALL
SELECT format('%s on table %s', string_agg(privilege, ', ' ORDER BY privilege), relname)
FROM wanted
WHERE NOT has_table_privilege(oid, privilege)
GROUP BY relname
UNION ALL
SELECT format('USAGE on sequence %s', c.relname)
FROM pg_class c
JOIN ours ON ours.oid = c.relnamespace
-- (The function must not be asked about anything else, in whatever order conditions are looked at.)
WHERE CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') ELSE false END
UNION ALL
SELECT format('EXECUTE on function %s', p.oid::regprocedure)
FROM pg_proc p
JOIN ours ON ours.oid = p.pronamespace
-- A trigger's function is run by whoever fires it.
WHERE p.prorettype <> 'trigger'::regtype AND NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1
