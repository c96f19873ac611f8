-- Which ledgers are there. (to_regclass would be refused without USAGE on the schema.)
SELECT coalesce(bool_or(c.relname = 'schema_migrations'), false) AS service,
       coalesce(bool_or(c.relname = 'control_migrations'), false) AS control
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'holdfast' AND c.relkind = 'r'
