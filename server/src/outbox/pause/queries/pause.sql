-- Pauses the drain unless it is paused. Under the service's lock. The clock's time and not the transaction's: the lock was
-- waited for. $1: who. $2: why.
INSERT INTO holdfast.drain_pause (paused_by, paused_at, reason) VALUES ($1, clock_timestamp(), $2)
ON CONFLICT (one) DO NOTHING
RETURNING paused_by, (extract(epoch FROM paused_at) * 1000000)::bigint AS since, reason
