-- Who may do what in a database with the schema `holdfast` (design, section 12). For psql, as a superuser or as the
-- migrating role, in each service database and in the control database, after *every* `holdfast migrate`:
--
--   psql -X -d orders -v server_login=holdfast -v caller_login=orders -f deploy/postgres/roles.sql
--
-- It guarantees: each group has what is granted here in this schema and nothing else (what is not listed is revoked),
-- and running it twice changes nothing. It does one transaction: all or nothing, and no statement sees the middle.
--
-- Variables, all optional, names without quotes:
--   server_role      what `holdfast serve` needs                                       default holdfast_server
--   caller_role      what a service needs to stage through the server                  default holdfast_caller
--   publisher_role   what it needs to insert events itself (publish_in_tx, SQL)        default holdfast_publisher
--   consumer_role    what it needs to consume in process (handle_in_tx)                default holdfast_consumer
--   migrator         who runs `holdfast migrate`                                       default the schema's owner
--   server_login, caller_login, publisher_login, consumer_login     an existing role that becomes a member of that group
--
-- It does not guarantee:
-- * separation within a cluster. Roles belong to the cluster: a member of holdfast_caller is one in every database of
--   it where this was run. Where services share a cluster, give each database groups of its own
--   (-v caller_role=orders_caller …), or take CONNECT on the databases away from PUBLIC.
-- * that a table of the *next* migration is append-only for the server before this has run again: the default
--   privileges know tables, not kinds of tables. The trigger on such a table holds from the start.

\set ON_ERROR_STOP on
\if :{?server_role} \else \set server_role holdfast_server \endif
\if :{?caller_role} \else \set caller_role holdfast_caller \endif
\if :{?publisher_role} \else \set publisher_role holdfast_publisher \endif
\if :{?consumer_role} \else \set consumer_role holdfast_consumer \endif

SELECT to_regnamespace('holdfast') IS NOT NULL AND to_regclass('holdfast.event_outbox') IS NOT NULL AS migrated \gset
\if :migrated
\else
    DO $$ BEGIN RAISE EXCEPTION 'no schema holdfast here: run `holdfast migrate` first'; END $$;
\endif
\if :{?migrator}
\else
    SELECT pg_get_userbyid(nspowner) AS migrator FROM pg_namespace WHERE nspname = 'holdfast' \gset
\endif

BEGIN;
-- Two runs at once would fail with "tuple concurrently updated".
SELECT pg_advisory_xact_lock(hashtextextended('holdfast roles.sql', 0)) AS locked \gset

-- Groups: nobody logs in as one; a login gets its rights by membership. An existing role's attributes are left alone.
SELECT format('CREATE ROLE %I NOLOGIN', name)
FROM (VALUES (:'server_role'), (:'caller_role'), (:'publisher_role'), (:'consumer_role')) AS wanted (name)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec

-- Nothing for PUBLIC, and each group from an empty sheet.
REVOKE ALL ON SCHEMA holdfast FROM PUBLIC, :"server_role", :"caller_role", :"publisher_role", :"consumer_role";
REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM PUBLIC, :"server_role", :"caller_role", :"publisher_role", :"consumer_role";
REVOKE ALL ON ALL SEQUENCES IN SCHEMA holdfast FROM PUBLIC, :"server_role", :"caller_role", :"publisher_role", :"consumer_role";
REVOKE ALL ON ALL ROUTINES IN SCHEMA holdfast FROM :"server_role", :"caller_role", :"publisher_role", :"consumer_role";
REVOKE EXECUTE ON FUNCTION holdfast.stage_ticket() FROM PUBLIC;

-- The server: rows, never tables. It owns nothing here, so it can neither alter nor drop, and no TRUNCATE.
GRANT USAGE ON SCHEMA holdfast TO :"server_role";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO :"server_role";
GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO :"server_role";
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA holdfast TO :"server_role";

-- Except: the ledgers are the migrator's (`serve` reads them to check), an audit only grows, and a decision about a hold is
-- final.
SELECT format('REVOKE %s ON %s FROM %I', privileges, to_regclass(relation), :'server_role')
FROM (VALUES
    ('holdfast.schema_migrations', 'INSERT, UPDATE, DELETE'),
    ('holdfast.control_migrations', 'INSERT, UPDATE, DELETE'),
    ('holdfast.admin_audit', 'UPDATE, DELETE'),
    ('holdfast.admin_audit_outcome', 'UPDATE, DELETE'),
    ('holdfast.hold_outcome', 'UPDATE')
) AS except_for (relation, privileges)
WHERE to_regclass(relation) IS NOT NULL \gexec

-- The same for what later migrations of this migrator create.
ALTER DEFAULT PRIVILEGES FOR ROLE :"migrator" IN SCHEMA holdfast
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :"server_role";
ALTER DEFAULT PRIVILEGES FOR ROLE :"migrator" IN SCHEMA holdfast GRANT USAGE ON SEQUENCES TO :"server_role";
ALTER DEFAULT PRIVILEGES FOR ROLE :"migrator" IN SCHEMA holdfast GRANT EXECUTE ON ROUTINES TO :"server_role";

-- Optional: what PostgreSQL tells of other roles' backends (address, state, since when) is shown by ListUnresolved only to a
-- member of pg_read_all_stats. It sees the whole cluster's, with the texts of queries, so it is not granted here.

-- A caller takes tickets, and touches no table: stage_ticket() runs as its owner.
GRANT USAGE ON SCHEMA holdfast TO :"caller_role";
GRANT EXECUTE ON FUNCTION holdfast.stage_ticket() TO :"caller_role";

-- A publisher inserts events; it can neither read nor change one, not even its own. The column defaults need the
-- function; an identity column needs no right on its sequence.
GRANT USAGE ON SCHEMA holdfast TO :"publisher_role";
-- By column: what an event is, and nothing of what the server keeps about it (ticket, claim, verdict).
GRANT INSERT (id, aggregate_id, event_type, envelope, created_at, ordering_key, content_hash)
    ON holdfast.event_outbox TO :"publisher_role";
GRANT EXECUTE ON FUNCTION holdfast.uuid_v7() TO :"publisher_role";

-- A consumer in process keeps its part of the inbox itself. It sees, and could change, every row of it: give it to services that are
-- trusted with their own inbox. With tickets or leases the server does it, and a caller's rights are enough.
GRANT USAGE ON SCHEMA holdfast TO :"consumer_role";
GRANT SELECT ON holdfast.event_inbox TO :"consumer_role";
GRANT INSERT (envelope_id, consumer_queue, source_service, event_type, lease_token, lease_until, generation, begun_at, redelivered,
              replay_id, cycle)
    ON holdfast.event_inbox TO :"consumer_role";
GRANT UPDATE (received_at, processed_at, lease_token, lease_until, generation, begun_at, ended, failures, lost_starts, cause,
              dead_lettered_at, cycle, replay_id, redelivered, last_error)
    ON holdfast.event_inbox TO :"consumer_role";

-- Needed only where CONNECT was taken from PUBLIC, and possible only for who may grant it.
SELECT format('GRANT CONNECT ON DATABASE %I TO %I, %I, %I, %I',
              datname, :'server_role', :'caller_role', :'publisher_role', :'consumer_role')
FROM pg_database
WHERE datname = current_database() AND pg_has_role(datdba, 'USAGE') \gexec

\if :{?server_login} \else \set server_login '' \endif
\if :{?caller_login} \else \set caller_login '' \endif
\if :{?publisher_login} \else \set publisher_login '' \endif
\if :{?consumer_login} \else \set consumer_login '' \endif
SELECT format('GRANT %I TO %I', part_of, login)
FROM (VALUES
    (:'server_role', :'server_login'),
    (:'caller_role', :'caller_login'),
    (:'publisher_role', :'publisher_login'),
    (:'consumer_role', :'consumer_login')
) AS membership (part_of, login)
WHERE login <> '' AND NOT EXISTS (
    SELECT FROM pg_auth_members m
    JOIN pg_roles g ON g.oid = m.roleid
    JOIN pg_roles l ON l.oid = m.member
    WHERE g.rolname = part_of AND l.rolname = login
) \gexec
COMMIT;

-- A login that is a superuser, or a member of the owner, has every right whatever is granted above: say so.
SELECT coalesce(string_agg(rolname, ', '), '') AS strong, count(*) > 0 AS any_strong
FROM pg_roles
WHERE rolname IN (:'server_login', :'caller_login', :'publisher_login', :'consumer_login') AND pg_has_role(oid, :'migrator', 'MEMBER') \gset
\if :any_strong
    \warn 'warning: no grant limits' :strong '(superuser or member of' :migrator')'
\endif
