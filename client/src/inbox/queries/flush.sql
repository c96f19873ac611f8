-- Puts WAL under a transaction that wrote nothing, so that its commit flushes: what it saw committed is then durable, too, whoever
-- committed it and however. An ack is built on it.
SELECT pg_logical_emit_message(true, 'holdfast', '') IS NOT NULL
