-- Tickets whose lock nobody holds. Shared, so that two probers never mistake each other for an open transaction; the
-- ticket itself is held exclusively. A free one stays share-locked until the prober's transaction ends, which harms nobody:
-- a nonce is taken once. Whoever binds rows to a ticket asks in this form, too, in the transaction that writes them.
SELECT asked.ticket
FROM (SELECT DISTINCT t AS ticket FROM unnest($1::bigint[]) AS t OFFSET 0) AS asked
WHERE pg_try_advisory_xact_lock_shared(asked.ticket)
