-- What schema holdfast looks like: one line a thing, in words that every PostgreSQL from 14 on uses. Not described: owners and
-- rights (`check` asks for those), storage, and what operators tune (fillfactor, autovacuum). Rows are not read. Describing an
-- expression takes ACCESS SHARE on its table, so whoever runs this bounds the wait for locks.
-- The ledgers are sqlx's.
WITH ours AS (
    SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relrowsecurity
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p')
      AND c.relname NOT IN ('schema_migrations', 'control_migrations')
)
SELECT 'table' AS kind, t.relname::text AS name,
       CASE t.relpersistence WHEN 'p' THEN 'logged' ELSE 'not logged' END
           || CASE t.relkind WHEN 'p' THEN ', partitioned' ELSE '' END
           || CASE WHEN t.relrowsecurity THEN ', row security' ELSE '' END AS fact
FROM ours AS t
UNION ALL
-- Type, nullness, and what fills it when nothing is said.
SELECT 'column', t.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod)
           || CASE WHEN a.attcollation <> y.typcollation THEN ' collate ' || a.attcollation::regcollation ELSE '' END
           || CASE WHEN a.attnotnull THEN ' | not null | ' ELSE ' | null | ' END
           || CASE WHEN a.attidentity = 'a' THEN 'identity always'
                   WHEN a.attidentity = 'd' THEN 'identity by default'
                   WHEN a.attgenerated <> '' THEN 'generated ' || pg_get_expr(d.adbin, d.adrelid)
                   WHEN d.adbin IS NOT NULL THEN 'default ' || pg_get_expr(d.adbin, 0)
                   ELSE 'nothing' END
FROM ours AS t
JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type AS y ON y.oid = a.atttypid
LEFT JOIN pg_attrdef AS d ON d.adrelid = t.oid AND d.adnum = a.attnum
UNION ALL
-- (From 18 on NOT NULL is a constraint, too; it is told with its column.)
SELECT 'constraint', t.relname || '.' || o.conname,
       pg_get_constraintdef(o.oid) || ' | '
           || coalesce((SELECT string_agg(a.attname, ',' ORDER BY a.attname) FROM pg_attribute AS a
                        WHERE a.attrelid = t.oid AND a.attnum = ANY (o.conkey)), '')
FROM ours AS t JOIN pg_constraint AS o ON o.conrelid = t.oid
WHERE o.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
-- A stranger's table that keeps rows of ours from being deleted.
SELECT 'reference', t.relname || ' from ' || o.conrelid::regclass, pg_get_constraintdef(o.oid)
FROM ours AS t JOIN pg_constraint AS o ON o.confrelid = t.oid
WHERE o.contype = 'f' AND o.conrelid NOT IN (SELECT oid FROM ours)
UNION ALL
-- Those of constraints are told with them.
SELECT 'index', t.relname || '.' || i.relname,
       regexp_replace(pg_get_indexdef(x.indexrelid), ' WITH \([^)]*\)', '')
           || CASE WHEN x.indisvalid AND x.indisready THEN '' ELSE ' | invalid' END
FROM ours AS t JOIN pg_index AS x ON x.indrelid = t.oid JOIN pg_class AS i ON i.oid = x.indexrelid
WHERE NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conindid = x.indexrelid AND o.conrelid = t.oid
                  AND o.contype IN ('p', 'u', 'x'))
UNION ALL
SELECT 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       concat_ws(', ',
           'returns ' || pg_get_function_result(p.oid),
           l.lanname,
           CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
           CASE p.proparallel WHEN 's' THEN 'parallel safe' WHEN 'r' THEN 'parallel restricted' ELSE 'parallel unsafe' END,
           CASE WHEN p.proisstrict THEN 'strict' END,
           CASE WHEN p.prosecdef THEN 'security definer' END,
           'set ' || array_to_string(p.proconfig, '; '),
           'text ' || left(encode(sha256(convert_to(coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), 'UTF8')), 'hex'), 16))
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang
WHERE n.nspname = 'holdfast' AND p.prokind IN ('f', 'p')
UNION ALL
-- `wake` switches the announcement on and off: either is right.
SELECT 'trigger', t.relname || '.' || g.tgname,
       pg_get_triggerdef(g.oid)
           || CASE WHEN t.relname = 'event_outbox' AND g.tgname = 'event_outbox_announce' AND g.tgenabled IN ('O', 'D')
                   THEN ' | as wake has it'
                   ELSE CASE g.tgenabled WHEN 'O' THEN ' | enabled' WHEN 'A' THEN ' | always' WHEN 'R' THEN ' | replica only'
                                         ELSE ' | disabled' END END
FROM ours AS t JOIN pg_trigger AS g ON g.tgrelid = t.oid
WHERE NOT g.tgisinternal
UNION ALL
SELECT 'rule', t.relname || '.' || r.rulename, pg_get_ruledef(r.oid)
FROM ours AS t JOIN pg_rewrite AS r ON r.ev_class = t.oid
ORDER BY 1, 2, 3
