-- Stages rows under their tickets; those without one are deliverable at once. seq is drawn in the order given, so that a request's events keep theirs; the rows are
-- inserted by id, so that two replicas with the same ids wait for each other in one order.
WITH given AS MATERIALIZED (
    SELECT nextval('holdfast.event_outbox_seq_seq') AS seq, e.*
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::text[], $9::bigint[])
         AS e (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, operation_id, generation)
)
INSERT INTO holdfast.event_outbox
    (id, aggregate_id, event_type, envelope, ordering_key, content_hash, ticket, resolved_at, seq, hold_operation_id, hold_generation)
SELECT id, aggregate_id, event_type, envelope::jsonb, ordering_key, content_hash, ticket, CASE WHEN ticket IS NULL THEN now() END, seq,
       operation_id, generation
FROM given ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id
