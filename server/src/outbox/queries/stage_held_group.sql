-- stage_group.sql for requests with a hold: inside of a transaction that has their pairs' locks, shared, since an earlier
-- statement, so that what is read of their outcomes here stays true until the rows are committed. Rows of a released pair are
-- written without their hold; if a pair was dropped, nothing is written (`dropped`).
WITH own AS MATERIALIZED (
    SELECT regexp_replace(to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
                          '(\.000000|000)$', '') || 'Z' AS now
), unbound AS MATERIALIZED (
    SELECT asked.ticket
    FROM (SELECT DISTINCT t AS ticket FROM unnest($7::bigint[]) AS t WHERE t IS NOT NULL OFFSET 0) AS asked
    WHERE pg_try_advisory_xact_lock_shared(asked.ticket)
), taken AS MATERIALIZED (
    SELECT o.id FROM holdfast.event_outbox AS o WHERE o.id = ANY ($1::uuid[])
), decided AS MATERIALIZED (
    SELECT h.operation_id, h.generation, h.outcome
    FROM (SELECT DISTINCT p.operation_id, p.generation
          FROM unnest($9::text[], $10::bigint[]) AS p (operation_id, generation) OFFSET 0) AS asked
    CROSS JOIN LATERAL (
        SELECT * FROM holdfast.hold_outcome AS h
        WHERE h.operation_id = asked.operation_id AND h.generation = asked.generation OFFSET 0) AS h
), given AS MATERIALIZED (
    -- seq is drawn in the order given, so that a request's events keep theirs.
    SELECT nextval('holdfast.event_outbox_seq_seq') AS seq, e.*,
           ((e.operation_id, e.generation) IN (SELECT operation_id, generation FROM decided)) IS TRUE AS released
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::boolean[],
                $9::text[], $10::bigint[])
         AS e (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, needs_time, operation_id, generation)
    WHERE NOT EXISTS (SELECT FROM unbound)
      AND NOT EXISTS (SELECT FROM taken)
      AND NOT EXISTS (SELECT FROM decided WHERE outcome = 'dropped')
), inserted AS (
    INSERT INTO holdfast.event_outbox
        (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, resolved_at, seq,
         hold_operation_id, hold_generation)
    SELECT id, aggregate_id, event_type,
           CASE WHEN needs_time
                THEN envelope::jsonb || jsonb_build_object('time', (SELECT own.now FROM own))
                ELSE envelope::jsonb
           END,
           ordering_key, content_hash, ticket, CASE WHEN ticket IS NULL THEN now() END, seq,
           CASE WHEN NOT released THEN operation_id END, CASE WHEN NOT released THEN generation END
    -- By id, so that two replicas with the same ids wait for each other in one order.
    FROM given ORDER BY id
    RETURNING 1
)
SELECT false AS stray,
       ARRAY(SELECT ticket FROM unbound) AS unbound,
       ARRAY(SELECT id FROM taken) AS taken,
       ARRAY(SELECT operation_id FROM decided WHERE outcome = 'dropped' ORDER BY operation_id, generation) AS dropped_operations,
       ARRAY(SELECT generation FROM decided WHERE outcome = 'dropped' ORDER BY operation_id, generation) AS dropped_generations,
       (SELECT count(*) FROM inserted) AS inserted
