-- Stages a group, all of it or nothing: one statement, and (autocommitted) its own transaction. Nothing is written if a ticket
-- is not bound or an id is there already; it answers which. An id that another transaction inserts meanwhile is a unique
-- violation, which writes nothing either: ON CONFLICT would leave half a group.
-- A ticket binds only while somebody holds its lock: asked here, in the transaction that writes the rows, before the first
-- of them is drawn (`given` waits for the whole answer). How a ticket's lock is asked: tickets/queries/free.sql.
-- $9: synchronous_commit, read when this transaction commits. $10: what the session has for a time-out that each BEGIN of
-- ours names otherwise; NULL inside such a transaction. Where it is something else the session was left in a transaction,
-- which nobody would commit: then nothing is written (`stray`).
WITH own AS MATERIALIZED (
    SELECT $10::text IS NOT NULL
               AND (num_nonnulls(pg_current_xact_id_if_assigned()) = 1
                    OR current_setting('idle_in_transaction_session_timeout') <> $10) AS stray,
           set_config('synchronous_commit', $9::text, true) AS durability,
           set_config('lock_timeout', '250ms', true) AS patience,
           -- RFC 3339 in UTC with 0, 3 or 6 digits of a second, as all our documents have it.
           regexp_replace(to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
                          '(\.000000|000)$', '') || 'Z' AS now
), unbound AS MATERIALIZED (
    SELECT asked.ticket
    FROM (SELECT DISTINCT t AS ticket FROM unnest($7::bigint[]) AS t WHERE t IS NOT NULL OFFSET 0) AS asked
    WHERE pg_try_advisory_xact_lock_shared(asked.ticket)
), taken AS MATERIALIZED (
    SELECT o.id FROM holdfast.event_outbox AS o WHERE o.id = ANY ($1::uuid[])
), given AS MATERIALIZED (
    -- seq is drawn in the order given, so that a request's events keep theirs.
    SELECT nextval('holdfast.event_outbox_seq_seq') AS seq, e.*
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::boolean[])
         AS e (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, needs_time)
    WHERE (SELECT NOT own.stray FROM own)
      AND NOT EXISTS (SELECT FROM unbound)
      AND NOT EXISTS (SELECT FROM taken)
), inserted AS (
    INSERT INTO holdfast.event_outbox
        (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, resolved_at, seq)
    SELECT id, aggregate_id, event_type,
           CASE WHEN needs_time
                THEN envelope::jsonb || jsonb_build_object('time', (SELECT own.now FROM own))
                ELSE envelope::jsonb
           END,
           ordering_key, content_hash, ticket, CASE WHEN ticket IS NULL THEN now() END, seq
    -- By id, so that two replicas with the same ids wait for each other in one order.
    FROM given ORDER BY id
    RETURNING 1
)
SELECT own.stray,
       ARRAY(SELECT ticket FROM unbound) AS unbound,
       ARRAY(SELECT id FROM taken) AS taken,
       (SELECT count(*) FROM inserted) AS inserted
FROM own
