-- Which of the rows that a settle did not write did it skip because somebody else has them locked? The others are stale: a
-- newer claim, or an earlier settle whose commit was not answered. $3: whether a row still needs its claim (a stamp does not), and
-- $4: whose.
SELECT o.id FROM unnest($1::uuid[], $2::bigint[]) AS s (id, generation)
JOIN holdfast.event_outbox AS o ON o.id = s.id AND o.claim_generation = s.generation
WHERE num_nonnulls(o.published_at) = 0 AND (num_nonnulls(o.claimed_at) = 1 AND o.claimed_by = $4 OR NOT $3)
