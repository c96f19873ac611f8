-- From the state that was looked at ($3 to $15) to the one that was decided ($16 and on): unless somebody was faster, whose state
-- is then looked at anew. $16: it begins. $19: the lease in seconds. $25: it was processed. $26: a new series begins, whose token
-- differs from the last one's. All but the key is compared so that no index serves it: the key's has the row.
UPDATE holdfast.event_inbox AS i
SET ticket = $17::bigint,
    lease_token = $18::uuid,
    lease_until = now() + $19::float8 * interval '1 second',
    generation = $20::bigint,
    begun_at = CASE WHEN $16::boolean THEN now() ELSE i.begun_at END,
    ended = $21::text,
    failures = $22::integer,
    lost_starts = $23::integer,
    cause = $24::text,
    processed_at = CASE WHEN $25::boolean THEN now() END,
    dead_lettered_at = CASE WHEN NOT $26::boolean THEN i.dead_lettered_at END,
    received_at = CASE WHEN $26::boolean THEN greatest(now(), i.received_at + interval '1 second') ELSE i.received_at END,
    cycle = $27::integer,
    replay_id = $28::uuid,
    redelivered = $29::boolean,
    last_error = $30::text
WHERE i.envelope_id = $1::uuid AND i.consumer_queue = $2::text
  AND i.received_at IS NOT DISTINCT FROM $3::timestamptz
  AND i.processed_at IS NOT DISTINCT FROM $4::timestamptz
  AND i.ticket IS NOT DISTINCT FROM $5::bigint
  AND i.lease_token IS NOT DISTINCT FROM $6::uuid
  AND i.lease_until IS NOT DISTINCT FROM $7::timestamptz
  AND i.generation = $8::bigint
  AND i.ended IS NOT DISTINCT FROM $9::text
  AND i.failures = $10::integer
  AND i.lost_starts = $11::integer
  AND i.cause IS NOT DISTINCT FROM $12::text
  AND i.dead_lettered_at IS NOT DISTINCT FROM $13::timestamptz
  AND i.cycle = $14::integer
  AND i.replay_id IS NOT DISTINCT FROM $15::uuid
RETURNING i.lease_until, i.processed_at, floor(extract(epoch FROM i.received_at))::bigint AS epoch,
          CASE WHEN $25::boolean THEN extract(epoch FROM now() - i.begun_at)::float8 END AS took
