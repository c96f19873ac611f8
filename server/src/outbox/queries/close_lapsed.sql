-- Batches whose lease ran out and of which heal.sql, an earlier statement, has left no row. $1: the lease.
DELETE FROM holdfast.outbox_claim AS c
WHERE (c.claimed_at < now() - $1::float8 * interval '1 second' OR c.claimed_at > now() + $1::float8 * interval '1 second')
  AND NOT EXISTS (SELECT FROM unnest(c.ids) AS entry (id) CROSS JOIN LATERAL (
                      SELECT FROM holdfast.event_outbox AS o
                      WHERE o.id = entry.id AND o.claimed_at = c.claimed_at AND num_nonnulls(o.published_at) = 0
                      OFFSET 0) AS o)
