SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       pg_is_in_recovery() AS standby,
       current_setting('default_transaction_read_only')::boolean AS read_only_by_default,
       current_setting('fsync')::boolean AS fsync,
       current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('server_encoding') AS encoding,
       current_setting('max_connections')::bigint AS max_connections,
       current_setting('superuser_reserved_connections')::bigint
           + coalesce(nullif(current_setting('reserved_connections', true), '')::bigint, 0) AS reserved_connections,
       d.datconnlimit::bigint AS database_limit,
       r.rolconnlimit::bigint AS login_limit,
       r.rolname::text AS login,
       r.rolsuper AS superuser,
       -- (to_regclass would be refused without USAGE on the schema.)
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'holdfast' AND c.relname = 'schema_migrations') AS service_line,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'holdfast' AND c.relname = 'control_migrations') AS control_line,
       -- Off in sessions of ours, unless what they bring along got lost.
       current_setting('enable_seqscan')::boolean AS sequential_scans
FROM pg_database d, pg_roles r
WHERE d.datname = current_database() AND r.rolname = current_user
