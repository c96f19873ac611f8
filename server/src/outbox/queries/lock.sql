-- The service's drain lock, tried and not waited for. Whatever it protects is read in a later statement.
SELECT pg_try_advisory_xact_lock($1, $2)
