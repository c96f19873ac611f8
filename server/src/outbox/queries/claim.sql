-- Verdict, admission and claim of what see.sql locked, folded into one update; of a resolved, fresh row it changes no indexed
-- column. What is claimed is entered as a batch of outbox_claim, whose now() is the rows' claimed_at. A row goes if nothing of its key is in
-- flight and no earlier deliverable row of its key is missing from the batch; rows of one key that go together are sent
-- one after the other. What may not go is set aside, out of the claim's path, until its front ends.
-- A key's fence is found once, at its first candidate, and spread by windows; membership is tested by hashed subplans (IS TRUE
-- keeps the planner from making joins of them): the numbers of rows here are nothing a planner could know, and a nested loop
-- over two lists of a thousand takes longer than everything else.
-- $1: ids locked by see.sql in this transaction. $2: committed tickets. $3: who claims. $4: whether an unroutable row holds
-- its key back. $5: committed tickets of earlier rows; such a row still names its ticket only if somebody else has it locked,
-- and holds its key back all the same. $6: whether a parked row holds its key back. Nothing while the drain is paused: a pause is
-- written under the lock that this statement runs under.
WITH candidate AS MATERIALIZED (
    SELECT o.id, o.seq, o.ordering_key AS key
    FROM unnest($1::uuid[]) AS wanted (id) JOIN holdfast.event_outbox AS o ON o.id = wanted.id
    WHERE (o.ticket IS NULL OR o.ticket = ANY ($2::bigint[]))
      AND num_nonnulls(o.hold_operation_id, o.parked_at, o.published_at, o.claimed_at) = 0
      AND (o.admitted_at IS NULL OR o.next_attempt_at <= now())
      AND NOT EXISTS (SELECT FROM holdfast.drain_pause)
), open AS MATERIALIZED (
    SELECT entry.id, entry.key FROM holdfast.outbox_claim AS c CROSS JOIN LATERAL unnest(c.ids, c.keys) AS entry (id, key)
    WHERE (entry.key IN (SELECT key FROM candidate WHERE key <> '')) IS TRUE
), busy AS MATERIALIZED (
    SELECT open.key FROM open CROSS JOIN LATERAL (
        SELECT FROM holdfast.event_outbox AS f
        WHERE f.id = open.id AND num_nonnulls(f.claimed_at) = 1 AND num_nonnulls(f.published_at) = 0 OFFSET 0) AS f
), line AS MATERIALIZED (
    SELECT id, seq, key, row_number() OVER (PARTITION BY key ORDER BY seq) = 1 AND key <> '' AS first FROM candidate
), fence AS MATERIALIZED (
    SELECT id, seq, key,
           CASE WHEN first THEN (key IN (SELECT key FROM busy)) IS TRUE END AS in_flight,
           CASE WHEN first THEN least(
               (SELECT b.seq FROM holdfast.event_outbox AS b
                WHERE b.ordering_key = line.key AND b.ticket IS NULL AND b.hold_operation_id IS NULL
                  AND b.published_at IS NULL AND b.id <> ALL ($1::uuid[])
                  AND ($4 OR NOT (b.unroutable AND b.next_attempt_at IS NOT NULL)) AND ($6 OR b.parked_at IS NULL)
                ORDER BY b.seq LIMIT 1),
               (SELECT min(b.seq) FROM holdfast.event_outbox AS b
                WHERE b.ordering_key = line.key AND b.ticket = ANY ($5::bigint[])
                  AND num_nonnulls(b.hold_operation_id) = 0 AND b.id <> ALL ($1::uuid[]))
           ) END AS before
    FROM line
), verdict AS MATERIALIZED (
    SELECT id,
           (key <> '') IS NOT TRUE
           OR (NOT bool_or(in_flight) OVER (PARTITION BY key)
               AND (seq < min(before) OVER (PARTITION BY key)) IS NOT FALSE) AS goes
    FROM fence
), claimed AS (
    UPDATE holdfast.event_outbox AS o
    SET ticket = NULL,
        resolved_at = coalesce(o.resolved_at, now()),
        admitted_at = CASE WHEN NOT v.goes THEN now() END,
        next_attempt_at = NULL,
        claimed_at = CASE WHEN v.goes THEN now() END,
        claimed_by = CASE WHEN v.goes THEN $3 END,
        claim_generation = o.claim_generation + v.goes::integer,
        is_head = false
    FROM verdict AS v
    WHERE o.id = v.id
      AND (o.ticket IS NULL OR o.ticket = ANY ($2::bigint[]))
      AND num_nonnulls(o.hold_operation_id, o.parked_at, o.published_at, o.claimed_at) = 0
      AND (o.admitted_at IS NULL OR o.next_attempt_at <= now())
    RETURNING o.id, o.seq, v.goes, o.claim_generation, o.attempts, o.ordering_key, o.event_type,
              -- Hand-written SQL may say 'infinity'; one row must not fail a batch.
              CASE WHEN isfinite(o.created_at) THEN extract(epoch FROM o.created_at)::bigint ELSE 0 END AS created_at,
              CASE WHEN v.goes THEN o.envelope::text END AS envelope,
              CASE WHEN v.goes THEN o.envelope ->> 'traceparent' END AS traceparent,
              CASE WHEN v.goes THEN o.envelope ->> 'tracestate' END AS tracestate
), entered AS (
    INSERT INTO holdfast.outbox_claim (claimed_by, ids, keys)
    SELECT $3, array_agg(id), array_agg(coalesce(ordering_key, '')) FROM claimed WHERE goes HAVING count(*) > 0
    RETURNING id
)
SELECT claimed.*, (SELECT id FROM entered) AS batch FROM claimed
