-- Tickets that were free for two minutes and that no undecided row names (asked in an earlier statement: a stage binds only
-- while the lock is held, and ends within one minute, so no new row can come to name them).
DELETE FROM holdfast.ticket WHERE nonce = ANY ($1::bigint[])
